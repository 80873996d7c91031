"""How fast a program steps is measured from the return of its first step on, in windows of at least 0.2 s."""

import pytest

from drumline.distribute.observe import StepRecord
from drumline_worker.runner.throughput import StepRate, Window

SECOND = 1_000_000_000


def _steps(rate: StepRate, *returned_at_s: float, examples: int | None = None) -> list[Window]:
    """Steps that each begin when the one before returned; the first takes a second."""
    windows = []
    before = returned_at_s[0] - 1
    for step, at in enumerate(returned_at_s):
        record = StepRecord(step, "spmd", int(before * SECOND), int(at * SECOND), None, examples)
        before = at
        if (window := rate.call(record)) is not None:
            windows.append(window)
    return windows


def _figures(window: Window | None) -> dict[str, float]:
    assert window is not None
    return window.figures


def test_the_first_step_and_what_was_before_it_are_in_no_window() -> None:
    (window,) = _steps(StepRate(), 10, 10.1, 10.25, examples=32)
    assert (window.steps, window.examples, window.seconds) == (2, 64, 0.25)
    assert window.figures == {"steps_per_s": 8.0, "step_ms": 125.0, "examples_per_s": 256.0}


def test_quick_steps_share_windows_of_a_fifth_of_a_second() -> None:
    windows = _steps(StepRate(), *(10 + number / 100 for number in range(101)))
    assert [window.steps for window in windows] == [20] * 5


def test_each_slow_step_has_a_window_of_its_own() -> None:
    windows = _steps(StepRate(), 10, 11, 13)
    assert [window.seconds for window in windows] == [1.0, 2.0]


def test_of_a_program_of_one_step_that_step_is_the_pace() -> None:
    rate = StepRate()
    assert _steps(rate, 10) == []
    rest = rate.rest()
    assert rest is not None
    assert (rest.steps, rest.seconds) == (1, 1.0)


def test_a_short_program_has_one_window_however_quick_it_was() -> None:
    rate = StepRate()
    assert _steps(rate, 10, 10.01, 10.02) == []
    rest = rate.rest()
    assert rest is not None
    assert rest.steps == 2


def test_a_rest_too_short_to_say_anything_is_left_out() -> None:
    rate = StepRate()
    assert len(_steps(rate, 10, 10.2, 10.21)) == 1
    assert rate.rest() is None


def test_without_a_step_there_is_no_pace() -> None:
    assert StepRate().rest() is None
    assert (StepRate().current(), StepRate().mean()) == (None, None)


def _call(rate: StepRate, call: int, at_s: float) -> Window | None:
    return rate.call(StepRecord(call, "spmd", int((at_s - 1) * SECOND), int(at_s * SECOND), None, 10))


@pytest.mark.parametrize(("calls", "steps"), [(3, 1), (1, 100), (10, 10)], ids=["three a step", "scans", "every tenth"])
def test_a_program_that_names_steps_is_measured_by_them_however_it_calls(calls: int, steps: int) -> None:
    rate, call, windows = StepRate(), 0, []
    for named in range(11):
        for _ in range(calls):
            windows.append(_call(rate, call, 10 + named))
            call += 1
        windows.append(rate.name(steps, (10 + named) * SECOND))
    rates = {window.figures["steps_per_s"] for window in windows[calls + 1 :] if window is not None}
    assert rates == {steps}
    assert _figures(rate.mean())["steps_per_s"] == steps
    assert _figures(rate.mean())["examples_per_s"] == 10 * calls


def test_a_single_name_counts_the_steps_up_to_it_with_all_that_they_took() -> None:
    rate = StepRate()
    _call(rate, 0, 10)
    rate.name(20_000, 13 * SECOND)
    rest = rate.rest()
    assert rest is not None
    assert (rest.steps, rest.seconds) == (20_000, 4.0)
    assert _figures(rate.mean())["steps_per_s"] == 5_000


def test_the_present_rate_is_that_of_the_last_five_seconds_and_the_mean_that_of_all() -> None:
    rate = StepRate()
    _steps(rate, *range(11), *(10 + number / 10 for number in range(1, 101)))
    assert _figures(rate.current())["steps_per_s"] == pytest.approx(10)
    assert _figures(rate.mean())["steps_per_s"] == pytest.approx(110 / 20)


def test_what_a_program_does_after_its_last_step_does_not_slow_it() -> None:
    rate = StepRate()
    for number in range(5):
        _call(rate, number, 10 + number)
        rate.name(1, (10 + number) * SECOND)
    _call(rate, 5, 100)
    assert rate.rest() is None
    assert _figures(rate.mean()) == {"steps_per_s": 1.0, "step_ms": 1_000.0, "examples_per_s": 10.0}


def test_a_program_that_rests_for_longer_than_its_steps_take_stands_still() -> None:
    rate = StepRate()
    _steps(rate, *(10 + number / 100 for number in range(101)))
    assert not rate.stands_still(int(15.9 * SECOND))
    assert rate.stands_still(int(16.1 * SECOND))


def test_slow_steps_are_no_standstill() -> None:
    rate = StepRate()
    _steps(rate, 10, 20, 30)
    assert not rate.stands_still(59 * SECOND)
    assert rate.stands_still(61 * SECOND)


def test_calls_between_two_names_are_no_standstill_and_naming_a_step_again_is_no_step() -> None:
    rate = StepRate()
    for number in range(3):
        _call(rate, number, 10 + number)
        rate.name(1, (10 + number) * SECOND)
    rate.name(0, 30 * SECOND)
    assert rate.stands_still(31 * SECOND)
    _call(rate, 3, 31)
    assert not rate.stands_still(35 * SECOND)


def test_after_a_standstill_the_present_rate_is_that_of_the_time_with_it() -> None:
    rate = StepRate()
    _steps(rate, *(10 + number / 100 for number in range(101)), 71)
    assert _figures(rate.current())["steps_per_s"] == pytest.approx(1 / 60)
