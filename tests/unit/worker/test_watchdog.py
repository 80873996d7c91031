"""When a program counts as hung, on a clock of the test."""

import math

import pytest

from drumline.contracts.heartbeats import LeaseTimes
from drumline.contracts.spec import Limits
from drumline_worker.host.messages import StopCause, Tick
from drumline_worker.shim.stopping import Action, Stopper, Watchdog


def _watchdog(**limits: float) -> Watchdog:
    return Watchdog(Limits(**limits), in_gang=False, now=0.0)


def _tick(activity: str = "own_code", advances: int = 0, usual_s: float | None = None, collectives: int = 0) -> Tick:
    return Tick.model_validate(
        {"activity": activity, "advances": advances, "usual_s": usual_s, "collectives": collectives}
    )


def _expires_at(watchdog: Watchdog, until: float = 100_000.0) -> float:
    """When it is enough, looked at as the shim does: every few seconds at least."""
    now = watchdog._looked_at
    while now < until:
        if watchdog.overdue(now) is not None:
            return now
        now = min(max(watchdog.next_at(), now + 0.1), now + 5.0)
    return until


@pytest.mark.parametrize(
    ("usual_s", "limit_s"), [(0.01, 60.0), (6.0, 60.0), (12.0, 120.0)], ids=["quick", "at the floor", "slow"]
)
def test_a_step_may_take_ten_usual_ones_and_at_least_a_minute(usual_s: float, limit_s: float) -> None:
    watchdog = _watchdog()
    watchdog.hear(_tick("in_step", 5, usual_s), 10.0)
    assert watchdog.overdue(10.0) is None
    assert _expires_at(watchdog) == pytest.approx(10.0 + limit_s, abs=0.2)


def test_any_change_of_place_restarts_the_clock() -> None:
    watchdog = _watchdog()
    for now in range(0, 600, 10):
        watchdog.hear(_tick("in_step", 5, 0.1, collectives=now), float(now))
        assert watchdog.overdue(float(now)) is None
    assert _expires_at(watchdog) == pytest.approx(650, abs=0.2)


def test_ticks_that_say_the_same_are_no_progress() -> None:
    watchdog = _watchdog()
    watchdog.hear(_tick("in_step", 5, 0.1), 0.0)
    for now in range(0, 60, 5):
        watchdog.hear(_tick("in_step", 5, 0.1), float(now))
        assert watchdog.overdue(float(now)) is None
    assert _expires_at(watchdog) == pytest.approx(60, abs=0.2)


@pytest.mark.parametrize("activity", ["in_step", "compiling", "own_code"])
def test_the_first_step_has_a_quarter_of_an_hour(activity: str) -> None:
    watchdog = _watchdog()
    watchdog.hear(_tick(activity), 0.0)
    assert _expires_at(watchdog) == pytest.approx(900, abs=0.2)


def test_own_code_that_computes_is_never_late() -> None:
    watchdog = _watchdog()
    used_s = 0.0
    for now in range(0, 20_000, 5):
        if watchdog.wants_cpu(float(now)):
            used_s += 4.0
            watchdog.note_cpu(used_s, float(now))
        assert watchdog.overdue(float(now)) is None


def test_own_code_that_waits_is_late_in_the_end_although_it_ticks() -> None:
    watchdog = _watchdog()
    for now in range(0, 899, 5):
        watchdog.hear(_tick(), float(now))
        if watchdog.wants_cpu(float(now)):
            watchdog.note_cpu(now * 0.001, float(now))
        assert watchdog.overdue(float(now)) is None
    assert watchdog.overdue(902.0) is not None


@pytest.mark.parametrize(("limits", "late"), [({}, False), ({"step_s": 1200}, True)])
def test_who_waits_for_other_members_on_purpose_is_late_only_by_a_limit_of_the_user(
    limits: dict[str, float], late: bool
) -> None:
    watchdog = _watchdog(**limits)
    watchdog.hear(_tick("own_code", 3), 0.0)
    for now in range(0, 1199, 5):
        watchdog.hear(_tick("own_code", 3).model_copy(update={"waits": now}), float(now))
        if watchdog.wants_cpu(float(now)):
            watchdog.note_cpu(0.0, float(now))
        assert watchdog.overdue(float(now)) is None
    assert (watchdog.overdue(1200.0) is not None) == late


def test_processor_time_does_not_excuse_a_step() -> None:
    watchdog = _watchdog()
    watchdog.hear(_tick("in_step", 5, 0.1), 0.0)
    assert not watchdog.wants_cpu(50.0)


def test_a_step_limit_of_the_user_holds_between_steps_as_well() -> None:
    watchdog = _watchdog(step_s=7)
    watchdog.hear(_tick("own_code", 3, 0.1), 10.0)
    watchdog.hear(_tick("in_step", 3, 0.1), 13.0)
    assert _expires_at(watchdog) == pytest.approx(17, abs=0.2)


def test_a_step_limit_of_the_user_leaves_out_compiling() -> None:
    watchdog = _watchdog(step_s=7)
    watchdog.hear(_tick("compiling", 3, 0.1), 10.0)
    for now in range(10, 100, 5):
        assert watchdog.overdue(float(now)) is None
    watchdog.hear(_tick("in_step", 3, 0.1), 100.0)
    assert _expires_at(watchdog) == pytest.approx(107, abs=0.2)


def test_a_step_limit_does_not_hold_before_the_first_step() -> None:
    watchdog = _watchdog(step_s=7)
    assert _expires_at(watchdog) == pytest.approx(900, abs=0.2)


def test_a_first_step_limit_of_the_user_counts_from_the_start_whatever_the_program_does() -> None:
    watchdog = _watchdog(first_step_s=20)
    for now in range(0, 20, 5):
        watchdog.hear(_tick("compiling" if now % 2 else "own_code"), float(now))
        assert watchdog.overdue(float(now)) is None
    assert _expires_at(watchdog) == pytest.approx(20, abs=0.2)


@pytest.mark.parametrize(("limits", "limit_s"), [({}, 300.0), ({"rendezvous_s": 30.0}, 30.0)])
def test_a_gang_has_its_time_to_meet(limits: dict[str, float], limit_s: float) -> None:
    watchdog = Watchdog(Limits(**limits), in_gang=True, now=0.0)
    assert _expires_at(watchdog) == pytest.approx(limit_s, abs=0.2)


def test_the_first_step_counts_from_the_end_of_the_meeting() -> None:
    watchdog = Watchdog(Limits(first_step_s=20), in_gang=True, now=0.0)
    watchdog.hear(_tick("rendezvous"), 100.0)
    watchdog.hear(_tick("own_code"), 105.0)
    assert _expires_at(watchdog) == pytest.approx(125, abs=0.2)


def test_a_host_that_was_frozen_blames_nobody() -> None:
    watchdog = _watchdog()
    watchdog.hear(_tick("in_step", 5, 0.1), 0.0)
    assert watchdog.overdue(5.0) is None
    assert watchdog.overdue(1_000.0) is None
    assert _expires_at(watchdog) == pytest.approx(1_055, abs=0.2)


def test_a_hang_dumps_then_kills_and_only_once() -> None:
    stopper = Stopper(LeaseTimes(120.0), alive_at=0.0)
    stopper.hang(10.0, 2.0)
    assert stopper.due(10.0) == (Action.DUMP, StopCause.HANG)
    stopper.hang(11.0, 2.0)
    assert stopper.due(11.9) is None
    assert stopper.due(12.0) == (Action.KILL, StopCause.HANG)
    assert stopper.due(99.0) is None
    assert stopper.cause is StopCause.HANG


@pytest.mark.parametrize(
    ("activity", "limits", "limit_s"),
    [
        ("in_step", {"step_s": 20.0}, 20.0),
        ("own_code", {"step_s": 20.0}, 20.0),
        ("in_step", {}, 60.0),
        ("own_code", {}, 900.0),
        ("compiling", {}, 900.0),
    ],
)
def test_no_clock_runs_while_telemetry_is_waited_for_and_all_go_on_where_they_were(
    activity: str, limits: dict[str, float], limit_s: float
) -> None:
    watchdog = _watchdog(**limits)
    watchdog.hear(_tick(activity, 5, 0.1), 0.0)
    watchdog.set_paused(True, 10.0)
    for now in range(10, 1_010, 5):
        watchdog.hear(_tick(activity, 5, 0.1), float(now))
        assert watchdog.overdue(float(now)) is None
        assert not watchdog.wants_cpu(float(now))
    assert watchdog.next_at() == math.inf
    watchdog.set_paused(False, 1_010.0)
    assert watchdog.overdue(1_010.0) is None
    assert _expires_at(watchdog) == pytest.approx(1_000.0 + limit_s, abs=0.2)


def test_the_first_step_has_its_time_without_what_was_waited_for_telemetry() -> None:
    watchdog = _watchdog(first_step_s=30.0)
    watchdog.set_paused(True, 20.0)
    watchdog.set_paused(True, 50.0)
    watchdog.set_paused(False, 500.0)
    watchdog.hear(_tick("own_code"), 500.0)
    assert _expires_at(watchdog) == pytest.approx(510.0, abs=0.2)


def test_what_comes_while_it_waits_is_not_dated_ahead() -> None:
    watchdog = _watchdog(step_s=20.0)
    watchdog.hear(_tick("own_code", 1), 0.0)
    watchdog.set_paused(True, 1.0)
    watchdog.hear(_tick("own_code", 2), 99.0)
    watchdog.set_paused(False, 100.0)
    assert _expires_at(watchdog) == pytest.approx(120.0, abs=0.2)
