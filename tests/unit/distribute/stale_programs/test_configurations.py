"""A step that captured a container, an array or a model which changed is another program."""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen

from support.stale_programs import run

pytestmark = pytest.mark.filterwarnings("ignore::drumline.distribute.errors.RetraceWarning")

# globals

SCALE: Any = 1
TABLE: Any = None
CONFIG: Any = None


def by_item(x: Any) -> Any:
    return x * CONFIG["lr"]


def by_attribute(x: Any) -> Any:
    return x * CONFIG.lr


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
