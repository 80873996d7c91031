"""A step whose globals changed is another program, and the engine says what changed."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist
from drumline.distribute.errors import RetraceWarning, StaleProgramError
from support.stale_programs import X, define, run

pytestmark = pytest.mark.filterwarnings("ignore::drumline.distribute.errors.RetraceWarning")

SCALE: Any = 1


def by_global(x: Any) -> Any:
    return x * SCALE


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
