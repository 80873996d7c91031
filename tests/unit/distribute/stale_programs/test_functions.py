"""A step whose helpers, defaults or self changed is another program; what its own traces change is none."""

from __future__ import annotations

import functools
import gc
import weakref
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist
from support.stale_programs import X, define, run, shared_strategy

pytestmark = pytest.mark.filterwarnings("ignore::drumline.distribute.errors.RetraceWarning")

# functions


def test_the_captured_number_of_each_lambda_counts(executor: str) -> None:
    strategy = shared_strategy(executor)
    x = dist.PerReplica.from_components([jnp.zeros((1, 2)), jnp.ones((1, 2))])
    shapes = []
    for axis in (0, 1, 0):
        gathered = strategy.run(lambda x: dist.all_gather(x, axis=axis), args=(x,))  # noqa: B023  # the point
        shapes.append(strategy.local_results(gathered)[0].shape)
    assert shapes == [(2, 2), (1, 4), (2, 2)]


def test_alternating_lambdas_are_traced_once_each() -> None:
    traces = []
    for axis in (0, 1, 0, 1, 0, 1):
        run(lambda x: (traces.append(axis), x + axis)[1])  # type: ignore[func-returns-value]  # noqa: B023
    assert traces == [0, 1]


def test_a_replaced_helper_is_seen(executor: str) -> None:
    module = define("def helper(x): return x + 1\ndef step(x): return helper(x)")
    assert run(module["step"], executor=executor) == 2
    module["helper"] = lambda x: x + 10
    assert run(module["step"], executor=executor) == 11
    del module["helper"]
    with pytest.raises(NameError, match="helper"):
        run(module["step"], executor=executor)
    module["helper"] = lambda x: x + 20
    assert run(module["step"], executor=executor) == 21


def test_a_shadowed_builtin_is_seen() -> None:
    module = define("def step(x): return abs(x)")
    assert run(module["step"], np.float32(-1)) == 1
    module["abs"] = lambda x: x * 5
    assert run(module["step"], np.float32(-1)) == -5
    del module["abs"]
    assert run(module["step"], np.float32(-1)) == 1


def test_replaced_code_is_seen() -> None:
    """What notebooks do when they load changed modules."""

    def helper(x: Any) -> Any:
        return x + 1

    def other(x: Any) -> Any:
        return x + 2

    def step(x: Any) -> Any:
        return helper(x)

    assert run(step) == 2
    helper.__code__ = other.__code__
    assert run(step) == 3


def test_a_mutable_default_is_seen() -> None:
    def step(x: Any, config: Any = {"lr": 1.0}, *, extra: Any = [1.0]) -> Any:  # noqa: B006  # the point
        return x * config["lr"] * extra[0]

    assert run(step) == 1
    step.__defaults__[0]["lr"] = 2.0  # type: ignore[index]  # as defined above
    assert run(step) == 2
    step.__kwdefaults__["extra"][0] = 3.0  # type: ignore[index]  # as above
    assert run(step) == 6


def test_decorated_steps_are_followed(executor: str) -> None:
    def doubling(fn: Any) -> Any:
        @functools.wraps(fn)
        def wrapper(*args: Any) -> Any:
            return 2 * fn(*args)

        return wrapper

    config = {"lr": 1.0}
    step = doubling(doubling(lambda x: x * config["lr"]))
    assert run(step, executor=executor) == 4
    config["lr"] = 3.0
    assert run(step, executor=executor) == 12


def test_partials_are_followed() -> None:
    config = {"lr": 1.0}

    def scaled(x: Any, by: Any, *, extra: Any) -> Any:
        return x * by["lr"] * extra

    step = functools.partial(scaled, by=config, extra=2.0)
    assert run(step) == 2
    config["lr"] = 3.0
    assert run(step) == 6
    assert run(functools.partial(scaled, by={"lr": 3.0}, extra=1.0)) == 3


def test_mutual_recursion_ends() -> None:
    module = define(
        "def even(x, n=4): return x * SCALE if n == 0 else odd(x, n - 1)\n"
        "def odd(x, n): return x if n == 0 else even(x, n - 1)",
        SCALE=1.0,
    )
    assert run(module["even"]) == 1
    module["SCALE"] = 2.0
    assert run(module["even"]) == 2


def test_a_container_that_holds_itself_ends() -> None:
    loop: dict[str, Any] = {"lr": 1.0}
    loop["self"] = loop

    def step(x: Any) -> Any:
        return x * loop["lr"]

    assert run(step) == 1
    loop["lr"] = 2.0
    assert run(step) == 2


# self


class Model:
    rate = 10.0

    def __init__(self, k: Any) -> None:
        self.k = k
        self.config = {"lr": 1.0}
        self.layers = [jnp.float32(1), jnp.float32(2)]
        self.part = SimpleNamespace(gain=1.0)
        self.steps = 0

    def step(self, x: Any) -> Any:
        return self.scaled(x) + self.layers[0]

    def scaled(self, x: Any) -> Any:
        return x * self.k * self.config["lr"] * self.part.gain * self.rate

    def __call__(self, x: Any) -> Any:
        return x * self.k


def test_a_method_sees_what_changed_of_its_self(executor: str) -> None:
    model = Model(1.0)
    assert run(model.step, executor=executor) == 11
    model.k = 2.0
    assert run(model.step, executor=executor) == 21
    model.config["lr"] = 2.0
    assert run(model.step, executor=executor) == 41
    model.layers[0] = jnp.float32(5)
    assert run(model.step, executor=executor) == 45
    model.part.gain = 0.5
    assert run(model.step, executor=executor) == 25
    model.rate = 1.0
    assert run(model.step, executor=executor) == 7
    model.part = SimpleNamespace(gain=1.0)
    assert run(model.step, executor=executor) == 9


def test_a_method_is_the_same_function_for_the_same_self() -> None:
    traces = []

    class Counting(Model):
        def step(self, x: Any) -> Any:
            traces.append(1)
            return super().step(x)

    model = Counting(1.0)
    for _ in range(3):
        run(model.step)
    assert len(traces) == 1
    assert run(Counting(2.0).step) == 21


def test_an_attribute_that_the_step_does_not_read_is_no_change() -> None:
    traces = []

    class Trainer:
        def __init__(self) -> None:
            self.steps = 0
            self.losses: list[Any] = []
            self.k = 2.0

        def train(self, x: Any) -> Any:
            traces.append(1)
            return self.loss(x)

        def loss(self, x: Any) -> Any:
            return x * self.k

    trainer = Trainer()
    for _ in range(4):
        trainer.losses.append(run(trainer.train))
        trainer.steps += 1
    assert len(traces) == 1
    trainer.k = 3.0
    assert run(trainer.train) == 3


def test_a_callable_object_sees_what_changed() -> None:
    model = Model(1.0)
    assert run(model) == 1
    model.k = 4.0
    assert run(model) == 4
    assert run(lambda x: model(x)) == 4
    model.k = 5.0
    assert run(lambda x: model(x)) == 5


def test_a_captured_object_passed_to_a_helper_counts_as_a_whole() -> None:
    model = Model(1.0)

    def apply(any_model: Any, x: Any) -> Any:
        return any_model.scaled(x)

    def step(x: Any) -> Any:
        return apply(model, x)

    assert run(step) == 10
    model.k = 2.0
    assert run(step) == 20
    model.config["lr"] = 3.0
    assert run(step) == 60


def test_a_replaced_method_of_a_class_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(1.0)
    assert run(model.step) == 11
    monkeypatch.setattr(Model, "scaled", lambda self, x: x * 100)
    assert run(model.step) == 101


# what traces change themselves


def test_a_step_that_logs_its_traces_is_traced_once_per_shape() -> None:
    log: dict[str, Any] = {"shapes": [], "count": 0}

    def step(x: Any) -> Any:
        log["shapes"].append(x.shape)
        log["count"] += 1
        return x

    for shape in ((1,), (2,), (1,), (3,), (2,), (3,)):
        run(step, np.zeros(shape, np.float32))
    assert log["count"] == 3


def test_two_steps_with_one_log_are_traced_once_each() -> None:
    log: list[str] = []

    def train(x: Any) -> Any:
        log.append("train")
        return x

    def test(x: Any) -> Any:
        log.append("test")
        return x

    for _ in range(3):
        run(train)
        run(test)
    assert log == ["train", "test"]


def test_a_cleared_log_is_no_change() -> None:
    log: list[int] = []

    def step(x: Any) -> Any:
        log.append(1)
        return x

    run(step)
    log.clear()
    run(step)
    assert log == []


def test_a_memo_filled_by_the_trace_is_part_of_the_state() -> None:
    memo: dict[str, float] = {}

    def step(x: Any) -> Any:
        return x * memo.setdefault("lr", 1.0)

    assert [run(step), run(step)] == [1, 1]
    memo["lr"] = 2.0
    assert run(step) == 2


def test_a_variable_made_on_first_use_keeps_its_value() -> None:
    class Lazy:
        total: Any = None
        by = 1.0

        def step(self, x: Any) -> Any:
            if self.total is None:
                self.total = dist.Variable(0.0, aggregation="mean")
            self.total.assign_add(x * self.by)
            return self.total.value

    lazy = Lazy()
    assert [run(lazy.step), run(lazy.step), run(lazy.step)] == [1, 2, 3]
    lazy.by = 10.0
    assert [run(lazy.step), run(lazy.step)] == [13, 23]


def test_variables_made_in_a_step_outlive_a_changed_capture() -> None:
    config = {"by": 1.0}

    def step(x: Any) -> Any:
        total = dist.Variable(0.0, aggregation="mean")
        total.assign_add(x * config["by"])
        return total.value

    values = [run(step), run(step)]
    config["by"] = 10.0
    assert [*values, run(step)] == [1, 2, 12]


# memory


def test_a_lambda_per_step_leaks_nothing() -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:2])
    alive: list[weakref.ref[Any]] = []

    def run_with(model: Model) -> None:
        alive.append(weakref.ref(model))
        strategy.run(lambda x: model.step(x), args=(X,))

    for number in range(6):
        run_with(Model(float(number)))
    gc.collect()
    assert [reference() for reference in alive] == [None] * 6


def test_a_dead_function_s_place_is_not_taken_by_another() -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:2])
    for number in range(50):
        table = jnp.full(2, number, jnp.float32)
        result = strategy.run(lambda x: x * table[0], args=(X,))  # noqa: B023
        assert float(strategy.local_results(result)[0]) == number
