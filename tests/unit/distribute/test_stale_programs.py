"""A step whose function, globals, captured containers or self changed is another program."""

from __future__ import annotations

import dataclasses
import functools
import gc
import math
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen

import drumline.distribute as dist
from drumline.distribute.errors import RetraceWarning, StaleProgramError

pytestmark = pytest.mark.filterwarnings("ignore::drumline.distribute.errors.RetraceWarning")

X = np.float32(1)


def run(step: Callable[..., Any], *args: Any, executor: str = "auto", **options: Any) -> Any:
    """What replica 0 of two returns."""
    result = _strategy(executor).run(step, args=args or (X,), options=dist.RunOptions(**options))
    return np.asarray(_strategy(executor).local_results(result)[0]).tolist()


@functools.cache
def _strategy(executor: str) -> dist.Strategy:
    return dist.MirroredStrategy(jax.devices()[:2], executor=executor)


def define(source: str, **names: Any) -> dict[str, Any]:
    """A module of its own, from source; ``names`` are its globals."""
    module = types.ModuleType("stranger")
    vars(module).update(names)
    exec(source, vars(module))
    return vars(module)


_MPMD = pytest.mark.long("whether a program is stale is found before an executor has it")


@pytest.fixture(params=["spmd", pytest.param("mpmd", marks=_MPMD)])
def executor(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# globals

SCALE: Any = 1
TABLE: Any = None
CONFIG: Any = None


def by_global(x: Any) -> Any:
    return x * SCALE


def by_item(x: Any) -> Any:
    return x * CONFIG["lr"]


def by_attribute(x: Any) -> Any:
    return x * CONFIG.lr


def through_three_helpers(x: Any) -> Any:
    return _helper_1(x)


def _helper_1(x: Any) -> Any:
    return _helper_2(x)


def _helper_2(x: Any) -> Any:
    return _helper_3(x)


def _helper_3(x: Any) -> Any:
    return x * SCALE


def in_a_comprehension(x: Any) -> Any:
    return sum([x * SCALE for _ in range(2)]) / 2


def in_an_inner_function(x: Any) -> Any:
    def inner(y: Any) -> Any:
        return y * SCALE

    return inner(x)


def recursive(x: Any, depth: int = 2) -> Any:
    return x * SCALE if depth == 0 else recursive(x, depth - 1)


@jax.jit
def jitted_helper(x: Any) -> Any:
    return x * SCALE


def through_jit(x: Any) -> Any:
    return jitted_helper(x)


value_and_gradient = jax.value_and_grad(by_global)


def through_grad(x: Any) -> Any:
    return value_and_gradient(x)[0]


GLOBAL_STEPS = (
    by_global,
    through_three_helpers,
    in_a_comprehension,
    in_an_inner_function,
    recursive,
    through_jit,
    through_grad,
)


@pytest.mark.parametrize("step", GLOBAL_STEPS, ids=lambda step: str(step.__name__))
def test_a_changed_global_is_seen(step: Any, executor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for scale in (1.0, 2.0, 1.0, 3):
        monkeypatch.setattr(sys.modules[__name__], "SCALE", scale)
        seen.append(run(step, executor=executor))
    assert seen == [1, 2, 1, 3]


@pytest.mark.parametrize("executor", ["spmd", "pmap", "mpmd"])
def test_a_changed_global_of_a_step_defined_anew_is_seen(executor: str) -> None:
    source = "def step(x): return x * SCALE"
    assert [run(define(source, SCALE=scale)["step"], executor=executor) for scale in (1, 2, 1)] == [1, 2, 1]


#: Values that Python calls equal and that make different programs, with what a step then says of them.
LOOK_ALIKES: dict[str, tuple[list[Any], Callable[[Any], Any]]] = {
    "kinds of one": ([1, 1.0, True], lambda value: {int: 1, float: 2, bool: 3}[type(value)]),
    "signed zeros": ([0.0, -0.0], lambda value: math.copysign(1, value)),
    "NaN": ([1.0, math.nan, 2.0], lambda value: -1.0 if math.isnan(value) else value),
    "complex zeros": ([0j, complex(0, -0.0)], lambda value: math.copysign(1, value.imag)),
    "NumPy scalars": (
        [np.float32(1), np.int32(1), np.float64(1)],
        lambda value: value.dtype.itemsize + value.dtype.num,
    ),
}


@pytest.mark.parametrize("case", LOOK_ALIKES)
@pytest.mark.parametrize("held", ["global", "closure", "list", "dict", "default", "attribute"])
def test_values_that_only_look_alike_are_told_apart(case: str, held: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values, say = LOOK_ALIKES[case]
    for value in (*values, *values):
        monkeypatch.setattr(sys.modules[__name__], "SCALE", value)
        assert run(_saying(say, value, held)) == say(value)


def _saying(say: Callable[[Any], Any], value: Any, held: str) -> Any:
    items, entries, owner = [value], {"k": value}, SimpleNamespace(value=value)
    steps: dict[str, Any] = {
        "global": lambda x: x * 0 + say(SCALE),
        "closure": lambda x: x * 0 + say(value),
        "list": lambda x: x * 0 + say(items[0]),
        "dict": lambda x: x * 0 + say(entries["k"]),
        "default": lambda x, value=value: x * 0 + say(value),
        "attribute": lambda x: x * 0 + say(owner.value),
    }
    return steps[held]


def test_an_equal_number_is_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    traces = []

    def step(x: Any) -> Any:
        traces.append(1)
        return x * SCALE

    for _ in range(4):
        monkeypatch.setattr(sys.modules[__name__], "SCALE", float("0.5"))
        assert run(step) == 0.5
    assert len(traces) == 1


# containers and arrays


@dataclasses.dataclass
class Settings:
    lr: float
    sizes: list[int] = dataclasses.field(default_factory=list)


class Pair(NamedTuple):
    lr: float
    other: Any = None


class Slotted:
    __slots__ = ("lr",)

    def __init__(self, lr: float) -> None:
        self.lr = lr


class ByClass:
    lr = 1.0


class Computed:
    def __init__(self, rate: float) -> None:
        self.rate = rate

    @property
    def lr(self) -> float:
        return self.rate


class Fallback:
    def __init__(self, rate: float) -> None:
        self.rates = {"lr": rate}

    def __getattr__(self, name: str) -> Any:
        return self.__dict__["rates"][name]


def _set_item(config: Any, value: float) -> None:
    config["lr"] = value


def _set_attribute(config: Any, value: float) -> None:
    config.lr = value


MUTATIONS: dict[str, tuple[Callable[[], Any], Callable[[Any, float], None], Any]] = {
    "dict": (lambda: {"lr": 1.0, "n": 3}, _set_item, by_item),
    "namespace": (lambda: SimpleNamespace(lr=1.0), _set_attribute, by_attribute),
    "dataclass": (lambda: Settings(1.0), _set_attribute, by_attribute),
    "object with slots": (lambda: Slotted(1.0), _set_attribute, by_attribute),
    "attribute over a class's": (ByClass, _set_attribute, by_attribute),
    "property": (lambda: Computed(1.0), lambda config, value: setattr(config, "rate", value), by_attribute),
    "__getattr__": (lambda: Fallback(1.0), lambda config, value: config.rates.update(lr=value), by_attribute),
    "module": (lambda: types.ModuleType("cfg"), _set_attribute, by_attribute),
    "class": (lambda: type("Config", (), {"lr": 1.0}), _set_attribute, by_attribute),
    "class's base": (
        lambda: type("Config", (type("Base", (), {"lr": 1.0}),), {}),
        lambda config, value: setattr(config.__base__, "lr", value),
        by_attribute,
    ),
    "metaclass-free enum of modules": (
        lambda: types.SimpleNamespace(lr=np.full((), 1.0, np.float32)),
        lambda config, value: config.lr.fill(value),
        by_attribute,
    ),
}


@pytest.mark.parametrize("case", MUTATIONS)
@pytest.mark.parametrize("is_new", [False, True], ids=["same function", "new function"])
def test_a_changed_configuration_is_seen(case: str, is_new: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    make, change, step = MUTATIONS[case]
    config = make()
    if isinstance(config, types.ModuleType):
        config.lr = 1.0  # type: ignore[attr-defined]  # a module made here
    monkeypatch.setattr(sys.modules[__name__], "CONFIG", config)
    seen = []
    for value in (1.0, 2.0, 1.0, 5.0):
        change(config, value)
        seen.append(run(types.FunctionType(step.__code__, globals()) if is_new else step))
    assert seen == [1, 2, 1, 5]


def test_items_of_nested_containers_are_seen(executor: str) -> None:
    config: dict[str, Any] = {"layers": [{"scale": 1.0}, {"scale": 2.0}], "flags": {1, 2}, "pair": Pair(3.0)}

    def step(x: Any) -> Any:
        total = sum(layer["scale"] for layer in config["layers"])
        return x * total + len(config["flags"]) + config["pair"].lr

    assert run(step, executor=executor) == 8
    config["layers"][1]["scale"] = 10.0
    assert run(step, executor=executor) == 16
    config["layers"].append({"scale": 1.0})
    config["flags"].add(3)
    assert run(step, executor=executor) == 18
    config["pair"] = Pair(0.0)
    assert run(step, executor=executor) == 15


def test_a_numpy_array_is_compared_by_content(executor: str) -> None:
    table = np.ones(1024, np.float32)  # 4 KiB

    def step(x: Any) -> Any:
        return x * table[-1]

    assert run(step, executor=executor) == 1
    table[-1] = 4
    assert run(step, executor=executor) == 4
    assert run(lambda x: x * table[-1], executor=executor) == 4


def test_a_replaced_array_is_seen(executor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def step(x: Any) -> Any:
        return x * TABLE[0]

    for value in (1.0, 2.0, 3.0):
        monkeypatch.setattr(sys.modules[__name__], "TABLE", jnp.full(3, value))
        assert run(step, executor=executor) == value


@pytest.mark.parametrize(
    "large",
    [np.ones(2000, np.float32), [1.0] * 65, {str(i): 1.0 for i in range(65)}, [[1.0] * 30, [1.0] * 40]],
    ids=["array", "list", "dict", "nested list"],
)
def test_a_new_function_with_a_large_capture_is_traced_again(large: Any) -> None:
    traces = []
    for _ in range(3):
        run(lambda x: (traces.append(1), x * len(large))[1])  # type: ignore[func-returns-value]
    assert len(traces) == 3


def test_the_same_function_with_a_large_capture_is_traced_once() -> None:
    large, traces = np.ones(2000, np.float32), []

    def step(x: Any) -> Any:
        traces.append(1)
        return x * large[0]

    for _ in range(3):
        run(step)
    assert len(traces) == 1


def test_a_random_generator_draws_anew_for_a_new_function() -> None:
    rng = np.random.default_rng(0)
    drawn = {run(lambda x: x * rng.normal()) for _ in range(3)}
    assert len(drawn) == 3


def test_the_generator_of_a_module_draws_anew_for_a_new_function() -> None:
    np.random.seed(0)
    drawn = {run(lambda x: x * np.random.normal()) for _ in range(3)}
    assert len(drawn) == 3


def test_an_equal_lambda_with_functions_of_libraries_is_traced_once() -> None:
    traces = []
    for _ in range(3):
        transform = optax.chain(optax.clip(1.0), optax.adam(1e-3))
        run(lambda x: (traces.append(transform), jnp.sum(jax.nn.relu(x)) * np.pi)[1])  # type: ignore[func-returns-value]  # noqa: B023
    assert len(traces) == 1


def test_another_optimizer_is_another_program() -> None:
    def update(rate: float) -> Any:
        transform = optax.sgd(rate)
        return run(lambda x: transform.update(x, transform.init(x))[0])

    assert [update(0.5), update(0.25), update(0.5)] == [-0.5, -0.25, -0.5]


class Network(linen.Module):
    """A model of flax."""

    gain: float = 1.0

    @linen.compact
    def __call__(self, x: Any) -> Any:
        return x * self.gain * SCALE


class Layer(equinox.Module):
    """A model of equinox."""

    gain: float

    def __call__(self, x: Any) -> Any:
        return x * self.gain * SCALE


@pytest.mark.parametrize(
    "make",
    [lambda gain: functools.partial(Network(gain).apply, {}), lambda gain: Layer(gain)],
    ids=["flax", "equinox"],
)
def test_models_of_libraries_are_followed(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(2.0)

    def step(x: Any) -> Any:
        return model(x)

    assert [run(step), run(model)] == [2, 2]
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 3.0)
    assert [run(step), run(model)] == [6, 6]
    model = make(5.0)
    assert [run(step), run(model)] == [15, 15]


# functions


def test_the_captured_number_of_each_lambda_counts(executor: str) -> None:
    strategy = _strategy(executor)
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


# arguments that are part of the program


def test_an_object_argument_that_changed_is_seen(executor: str) -> None:
    config = SimpleNamespace(lr=1.0)

    def step(x: Any, config: Any) -> Any:
        return x * config.lr

    assert run(step, X, config, executor=executor) == 1
    config.lr = 2.0
    assert run(step, X, config, executor=executor) == 2


def test_a_function_argument_whose_globals_changed_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(x: Any, fn: Any) -> Any:
        return fn(x)

    assert run(step, X, by_global) == 1
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 2)
    assert run(step, X, by_global) == 2


def test_a_static_argument_that_changed_is_seen() -> None:
    config = {"lr": 1.0}

    def step(x: Any, config: Any) -> Any:
        return x * config["lr"]

    strategy = _strategy("auto")
    options = dist.RunOptions(static_argnames=("config",))
    seen = []
    for value in (1.0, 2.0):
        config["lr"] = value
        seen.append(float(strategy.local_results(strategy.run(step, (X, config), options=options))[0]))
    assert seen == [1, 2]


def test_static_arguments_are_told_apart_by_type_and_value() -> None:
    traces = []

    def step(x: Any, n: Any) -> Any:
        traces.append(n)
        return x

    for n in (1, 1.0, True, 1, 1.0, True):
        _strategy("auto").run(step, (X, n), options=dist.RunOptions(static_argnames=("n",)))
    assert [type(n) for n in traces] == [int, float, bool]


def test_a_setting_of_jax_makes_another_program() -> None:
    def step(x: Any) -> Any:
        return jax.random.uniform(jax.random.key(0)) * x

    threefry = run(step)
    with jax.default_prng_impl("rbg"):
        rbg = run(step)
    assert [run(step), threefry != rbg] == [threefry, True]


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


# what it says


def test_the_third_trace_says_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(x: Any) -> Any:
        return x * SCALE

    for scale in (1, 2):
        monkeypatch.setattr(sys.modules[__name__], "SCALE", scale)
        run(step)
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 3)
    with pytest.warns(RetraceWarning, match=r"step .*traced 3 times for the same shapes: SCALE: 2 -> 3\. "):
        run(step)


REASONS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "item": (lambda value: {"lr": value}, r"captured\['lr'\]: 1\.0 -> 2\.0"),
    "attribute": (lambda value: SimpleNamespace(lr=value), r"captured\.lr: 1\.0 -> 2\.0"),
    "array": (lambda value: jnp.full(2, value), "a new object for captured"),
    "large array": (lambda value: np.full(5000, value), r"can't be compared: captured \(float64\[5000\]\)"),
}


@pytest.mark.parametrize("case", REASONS)
def test_the_reason_names_the_captured_value(case: str) -> None:
    make, reason = REASONS[case]
    strategy = dist.MirroredStrategy(jax.devices()[:2])

    def step_with(captured: Any) -> Any:
        return lambda x: (captured, x)[1]

    for value in (0.0, 1.0):
        strategy.run(step_with(make(value)), args=(X,))
    with pytest.warns(RetraceWarning, match=reason):
        strategy.run(step_with(make(2.0)), args=(X,))


# check_stale


def deep(x: Any) -> Any:
    return _deep_1(x)


def _deep_1(x: Any) -> Any:
    return _deep_2(x)


def _deep_2(x: Any) -> Any:
    return _deep_3(x)


def _deep_3(x: Any) -> Any:
    return _deep_4(x)


def _deep_4(x: Any) -> Any:
    return x * SCALE


def test_check_stale_finds_what_lies_too_deep(executor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(deep, executor=executor, check_stale=True) == 1
    assert run(deep, executor=executor, check_stale=True) == 1
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 2)
    with pytest.raises(StaleProgramError, match=r"out of date: .*_deep_4"):
        run(deep, executor=executor, check_stale=True)


def test_check_stale_names_what_can_not_be_compared(executor: str) -> None:
    table = np.ones(5000, np.float32)

    def step(x: Any) -> Any:
        return x * table

    def first(**options: Any) -> Any:
        return run(step, executor=executor, **options)[0]

    assert first(check_stale=True) == 1
    table[:] = 2
    with pytest.raises(StaleProgramError, match=r"table \(float32\[5000\]\)"):
        first(check_stale=True)


def test_check_stale_leaves_variables_alone() -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:2])
    with strategy.scope():
        total = dist.Variable(0.0, aggregation="mean")
    clock = iter(range(1, 10))

    def step() -> Any:
        total.assign_add(float(next(clock)))

    strategy.run(step)
    with pytest.raises(StaleProgramError):
        strategy.run(step, options=dist.RunOptions(check_stale=True))
    assert float(total.value) == 1
    strategy.run(step)
    assert float(total.value) == 2


@pytest.fixture(scope="module", autouse=True)
def frozen_heap() -> None:
    """A collection looks at what these tests made, and not at the million objects of JAX each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def forgotten_functions(frozen_heap: None) -> Iterator[None]:
    """Strategies are shared between tests; what one test defined, no other calls."""
    yield
    gc.collect()
    # What is left lives on: the next collection need not look at it again.
    gc.freeze()


# arrays that the caller changes in place


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("executor", ["spmd", "pmap", "mpmd"])
def test_an_array_argument_may_be_changed_as_soon_as_run_returns(executor: str, replicas: int) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:replicas], executor=executor)
    for _ in range(5):
        array = np.ones(1 << 20, np.float32)
        total, same = strategy.run(lambda x: (jnp.sin(x) * 0 + x, x + 0), args=(array,))
        array[:] = 2
        for part in (*strategy.local_results(total), *strategy.local_results(same)):
            assert float(jnp.max(part)) == 1


@pytest.mark.parametrize("how", ["initial value", "assign", "assign_add"])
def test_an_array_given_to_a_variable_may_be_changed_afterwards(how: str) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:2])
    for _ in range(5):
        array = np.ones(1 << 20, np.float32)
        with strategy.scope():
            variable = dist.Variable(array if how == "initial value" else np.zeros_like(array), aggregation="mean")
        if how != "initial value":
            getattr(variable, how)(array)
        array[:] = 2
        assert float(np.max(variable.numpy())) == 1
