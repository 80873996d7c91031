"""How fast a program steps is measured from the return of its first step on, in windows of at least 0.2 s."""

from drumline.distribute.observe import StepRecord
from drumline_worker.runner.pace import Pace, Window

SECOND = 1_000_000_000


def _steps(pace: Pace, *returned_at_s: float, examples: int | None = None) -> list[Window]:
    """Steps that each begin when the one before returned; the first takes a second."""
    windows = []
    before = returned_at_s[0] - 1
    for step, at in enumerate(returned_at_s):
        record = StepRecord(step, "spmd", int(before * SECOND), int(at * SECOND), None, examples)
        before = at
        if (window := pace.add(record)) is not None:
            windows.append(window)
    return windows


def test_the_first_step_and_what_was_before_it_are_in_no_window() -> None:
    (window,) = _steps(Pace(), 10, 10.1, 10.25, examples=32)
    assert (window.step, window.steps, window.examples, window.seconds) == (2, 2, 64, 0.25)
    assert window.figures == {"steps_per_s": 8.0, "step_ms": 125.0, "examples_per_s": 256.0}


def test_quick_steps_share_windows_of_a_fifth_of_a_second() -> None:
    windows = _steps(Pace(), *(10 + number / 100 for number in range(101)))
    assert [window.steps for window in windows] == [20] * 5


def test_each_slow_step_has_a_window_of_its_own() -> None:
    windows = _steps(Pace(), 10, 11, 13)
    assert [window.seconds for window in windows] == [1.0, 2.0]


def test_of_a_program_of_one_step_that_step_is_the_pace() -> None:
    pace = Pace()
    assert _steps(pace, 10) == []
    rest = pace.rest()
    assert rest is not None
    assert (rest.step, rest.steps, rest.seconds) == (0, 1, 1.0)


def test_a_short_program_has_one_window_however_quick_it_was() -> None:
    pace = Pace()
    assert _steps(pace, 10, 10.01, 10.02) == []
    rest = pace.rest()
    assert rest is not None
    assert (rest.step, rest.steps) == (2, 2)


def test_a_rest_too_short_to_say_anything_is_left_out() -> None:
    pace = Pace()
    assert len(_steps(pace, 10, 10.2, 10.21)) == 1
    assert pace.rest() is None


def test_without_a_step_there_is_no_pace() -> None:
    assert Pace().rest() is None
    assert Pace().last_step is None
