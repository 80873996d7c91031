"""When the program is asked, told and made to stop, on a clock of the test."""

import pytest

from drumline.contracts.heartbeats import LeaseTimes
from drumline_worker.host.messages import StopCause
from drumline_worker.shim.stopping import Action, Stopper

T = 120.0


def _all_due(stopper: Stopper, now: float) -> list[tuple[Action, StopCause]]:
    actions = []
    while (due := stopper.due(now)) is not None:
        actions.append(due)
    return actions


def test_nothing_is_due_while_heartbeats_are_acknowledged() -> None:
    stopper = Stopper(LeaseTimes(T), alive_at=0.0)
    for now in range(0, 1_000, 5):
        stopper.extend(float(now))
        assert _all_due(stopper, float(now)) == []
    assert stopper.cause is None


def test_the_lease_ends_in_term_20_s_and_kill_10_s_before_takeover() -> None:
    stopper = Stopper(LeaseTimes(T), alive_at=7.0)
    assert stopper.next_at() == 107.0
    assert _all_due(stopper, 106.9) == []
    assert _all_due(stopper, 107.0) == [(Action.TERM, StopCause.LOST)]
    assert stopper.next_at() == 117.0
    assert _all_due(stopper, 117.0) == [(Action.KILL, StopCause.LOST)]
    assert stopper.next_at() is None


def test_the_lead_times_scale_with_the_lease() -> None:
    stopper = Stopper(LeaseTimes(0.2 * T, scale=0.2), alive_at=7.0)
    assert stopper.next_at() == pytest.approx(27.0)
    assert _all_due(stopper, 27.1) == [(Action.TERM, StopCause.LOST)]
    assert stopper.next_at() == pytest.approx(29.0)
    assert _all_due(stopper, 29.0) == [(Action.KILL, StopCause.LOST)]


def test_what_a_cancel_leaves_after_term_scales_and_the_grace_of_the_user_does_not() -> None:
    stopper = Stopper(LeaseTimes(0.2 * T, scale=0.2), alive_at=0.0)
    stopper.stop(StopCause.CANCELLED, 3.0, now=1.0)
    assert _all_due(stopper, 3.9) == [(Action.ASK, StopCause.CANCELLED)]
    assert _all_due(stopper, 4.0) == [(Action.TERM, StopCause.CANCELLED)]
    assert stopper.next_at() == pytest.approx(6.0)


def test_a_host_thawed_after_the_lease_kills_at_once() -> None:
    stopper = Stopper(LeaseTimes(T), alive_at=0.0)
    assert _all_due(stopper, 5_000.0) == [(Action.KILL, StopCause.LOST)]


def test_a_term_by_the_lease_is_not_taken_back_by_a_late_acknowledgement() -> None:
    stopper = Stopper(LeaseTimes(T), alive_at=0.0)
    assert _all_due(stopper, 100.0) == [(Action.TERM, StopCause.LOST)]
    stopper.extend(99.0)
    assert _all_due(stopper, 110.0) == [(Action.KILL, StopCause.LOST)]


def test_old_news_does_not_shorten_the_lease() -> None:
    stopper = Stopper(LeaseTimes(T), alive_at=50.0)
    stopper.extend(10.0)
    assert stopper.next_at() == 150.0


def test_a_cancel_asks_then_terms_after_the_grace_then_kills() -> None:
    stopper = Stopper(LeaseTimes(T), alive_at=0.0)
    stopper.stop(StopCause.CANCELLED, 30.0, now=1.0)
    assert _all_due(stopper, 1.0) == [(Action.ASK, StopCause.CANCELLED)]
    assert _all_due(stopper, 30.9) == []
    assert _all_due(stopper, 31.0) == [(Action.TERM, StopCause.CANCELLED)]
    assert _all_due(stopper, 41.0) == [(Action.KILL, StopCause.CANCELLED)]
    assert _all_due(stopper, 9_999.0) == []


def test_a_second_cancel_with_less_grace_is_honoured() -> None:
    stopper = Stopper(LeaseTimes(T), alive_at=0.0)
    stopper.stop(StopCause.CANCELLED, 30.0, now=0.0)
    stopper.stop(StopCause.CANCELLED, 0.0, now=1.0)
    assert _all_due(stopper, 1.0) == [(Action.TERM, StopCause.CANCELLED)]


def test_a_kill_goes_before_everything_and_names_its_cause() -> None:
    stopper = Stopper(LeaseTimes(T), alive_at=0.0)
    stopper.stop(StopCause.CANCELLED, 30.0, now=0.0)
    assert _all_due(stopper, 0.0) == [(Action.ASK, StopCause.CANCELLED)]
    stopper.stop(StopCause.FENCED, None, now=2.0)
    assert _all_due(stopper, 2.0) == [(Action.KILL, StopCause.FENCED)]
    assert stopper.cause is StopCause.FENCED
