"""What was recorded in a call of `strategy.run` is told by the step that the program names, however it calls."""

from collections.abc import Iterable

import pytest

from drumline_worker.runner.step_numbers import HOLD_NS, StepNumbers


class _Program:
    """Calls and names steps; each call records one thing, whose number is kept."""

    def __init__(self) -> None:
        self.numbers: StepNumbers[int] = StepNumbers()
        self.steps: dict[int, int] = {}
        self._calls = 0

    def calls(self, count: int, now: int = 0) -> None:
        for _ in range(count):
            self.numbers.hold(self._calls, self._calls, now)
            self.numbers.note_return(self._calls)
            self._calls += 1

    def log(self, step: int) -> None:
        self._keep(self.numbers.name(step)[1])

    def restore(self, next_step: int, calls: int) -> None:
        self._calls = calls
        self.numbers.note_restore(next_step, calls)

    def wait(self, now: int, total: int | None = None) -> None:
        self._keep(self.numbers.overdue(now, total))

    def end(self, total: int | None = None) -> dict[int, int]:
        self._keep(self.numbers.rest(total))
        return self.steps

    def _keep(self, numbered: Iterable[tuple[int, int, int]]) -> None:
        self.steps.update({call: step for step, call, _ in numbered})


def _steps_of(calls_each: int, named: Iterable[int]) -> list[int]:
    program = _Program()
    for step in named:
        program.calls(calls_each)
        program.log(step)
    return list(program.end().values())


@pytest.mark.parametrize(
    ("calls_each", "named", "steps"),
    [
        (1, range(4), [0, 1, 2, 3]),
        (1, range(1, 4), [1, 2, 3]),
        (2, range(3), [0, 0, 1, 1, 2, 2]),
        (4, [0, 1], [0] * 4 + [1] * 4),
        (10, [9, 19], list(range(20))),
        (20, [9, 19], [step for step in range(20) for _ in range(2)]),
        (1, [99, 199, 299], [99, 199, 299]),
        (2, [32, 64], [32, 32, 64, 64]),
        (1, [500, 501], [500, 501]),
        (1, [0, 1, 0, 1], [0, 1, 0, 1]),
    ],
    ids=[
        "each",
        "from one",
        "train and eval",
        "accumulation",
        "every tenth",
        "every tenth twice",
        "scans",
        "examples",
        "own resume",
        "epochs",
    ],
)
def test_a_call_belongs_to_the_step_that_the_program_was_in(
    calls_each: int, named: Iterable[int], steps: list[int]
) -> None:
    assert _steps_of(calls_each, named) == steps


def test_several_logs_of_one_step_are_one_step() -> None:
    program = _Program()
    for step in range(3):
        program.calls(1)
        program.log(step)
        program.calls(1)
        program.log(step)
    assert list(program.end().values()) == [0, 0, 1, 1, 2, 2]


def test_an_epoch_that_is_logged_among_steps_does_not_put_them_back() -> None:
    program = _Program()
    for step in range(4):
        program.calls(1)
        program.log(step)
    program.log(1)
    program.calls(2)
    program.log(4)
    assert list(program.end().values()) == [0, 1, 2, 3, 4, 4]
    assert program.numbers.named == 4


def test_a_program_that_names_no_step_is_told_by_its_calls() -> None:
    program = _Program()
    program.calls(3)
    assert program.end() == {0: 0, 1: 1, 2: 2}
    assert program.numbers.named is None


def test_what_follows_the_last_step_belongs_to_it() -> None:
    program = _Program()
    for step in range(30):
        program.calls(1)
        program.log(step)
    program.calls(50)
    assert max(program.end().values()) == 29


def test_no_step_is_beyond_the_last_that_the_program_announced() -> None:
    program = _Program()
    program.calls(80)
    assert max(program.end(total=30).values()) == 29


def test_a_restored_program_goes_on_from_the_step_of_its_checkpoint() -> None:
    program = _Program()
    program.restore(next_step=10, calls=20)
    assert program.numbers.done == 10
    for step in (10, 11):
        program.calls(2)
        program.log(step)
    assert program.end() == {20: 10, 21: 10, 22: 11, 23: 11}


def test_what_waits_too_long_for_its_step_is_told_by_the_pace_so_far() -> None:
    program = _Program()
    for step in range(3):
        program.calls(2)
        program.log(step)
    program.calls(5)
    program.wait(HOLD_NS - 1)
    assert list(program.steps.values()) == [0, 0, 1, 1, 2, 2]
    program.wait(HOLD_NS)
    assert list(program.steps.values()) == [0, 0, 1, 1, 2, 2, 3, 3, 3, 3, 3]


def test_before_any_name_what_waits_too_long_is_told_by_its_call() -> None:
    program = _Program()
    program.calls(3)
    program.wait(HOLD_NS, total=2)
    assert program.steps == {0: 0, 1: 1, 2: 1}


def test_what_is_recorded_without_a_call_belongs_to_the_step_named_next() -> None:
    numbers: StepNumbers[str] = StepNumbers()
    for step in range(3):
        numbers.hold(0, "sum", 0)
        assert [one.step for one in numbers.name(step)[1]] == [step]


def test_a_call_that_was_named_long_ago_is_known_by_its_step() -> None:
    numbers: StepNumbers[str] = StepNumbers()
    for call, step in ((0, 0), (1, 1), (3, 2), (5, 5)):  # calls 2 and 3 are step 2, 4 and 5 are steps 3 to 5
        for one in range(call + 1):
            numbers.note_return(one)
        numbers.name(step)
    assert [numbers.find(call) for call in range(6)] == [0, 1, 2, 2, 5, 5]
    numbers.note_return(6)
    assert numbers.find(6) is None  # not named yet
