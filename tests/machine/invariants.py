"""What must hold of the tables after every step, by themselves and beside the model."""

from collections import Counter
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from drumline.contracts.states import (
    ATTEMPT_TRANSITIONS,
    MEMBER_TRANSITIONS,
    RUN_TRANSITIONS,
    TERMINAL_ATTEMPT,
    TERMINAL_MEMBER,
    TERMINAL_RUN,
    AttemptState,
    DeviceState,
    MemberState,
    RunState,
)
from drumline_server.storage.models import Run
from machine.facts import Facts
from machine.model import BEGUN, Model

_STAGES = {AttemptState.DISPATCHED: "dispatched", AttemptState.FINISHING: "finishing"}


class Invariants:
    """Compares the tables with the model, and with what they were before."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._states: dict[str, StrEnum] = {}
        self._fences: dict[str, int] = {}

    def check(self, facts: Facts, model: Model) -> None:
        """Fails with the first that does not hold."""
        self._check_histories(facts)
        self._check_fences(facts)
        _check_devices(facts)
        for run in facts.runs.values():
            _check_timer(facts, run)
            _check_budget(run)
        _compare(facts, model)

    def _check_histories(self, facts: Facts) -> None:
        """Each is a path in the table of moves, and only grows."""
        for event in facts.events:
            if event.seq <= self._seen.get(event.run_id, 0):
                continue
            assert event.seq == self._seen.get(event.run_id, 0) + 1, f"{event.run_id} has no event before {event.seq}"
            self._seen[event.run_id] = event.seq
            state = str(event.body.get("state"))
            if event.kind == "state":
                self._move(RUN_TRANSITIONS, event.run_id, RunState(state))
            elif event.kind == "attempt":
                self._move(ATTEMPT_TRANSITIONS, event.body["attempt"], AttemptState(state))
            elif event.kind == "member":
                self._move(MEMBER_TRANSITIONS, event.body["member"], MemberState(state))
        newest = Counter(event.run_id for event in facts.events)
        assert newest == self._seen, "events are gone"
        stands = {row.id: row.state for rows in (facts.runs, facts.attempts, facts.members) for row in rows.values()}
        for name, state in stands.items():
            assert state == self._states[name], f"{name} is {state}, its events say {self._states[name]}"

    def _move(self, moves: Mapping[Any, frozenset[Any]], name: str, to: StrEnum) -> None:  # Any: one of three enums
        before = self._states.get(name)
        assert before is None or before == to or to in moves[before], f"{name} moved from {before} to {to}"
        self._states[name] = to

    def _check_fences(self, facts: Facts) -> None:
        for run in facts.runs.values():
            assert run.fence >= self._fences.get(run.id, 0), f"the fence of {run.id} fell"
            self._fences[run.id] = run.fence
            fences = sorted(attempt.fence for attempt in facts.attempts.values() if attempt.run_id == run.id)
            assert fences == list(range(1, run.fence + 1)), f"{run.id} has fence {run.fence} and attempts {fences}"
            live = [row.id for row in facts.attempts.values() if row.run_id == run.id and _is_live(row.state)]
            assert len(live) <= 1, f"{run.id} has live attempts {live}"


def _is_live(state: str) -> bool:
    return state not in TERMINAL_ATTEMPT


def _check_devices(facts: Facts) -> None:
    """Held by one live attempt, and of none that runs on it free."""
    open_holds = [hold for hold in facts.holds if hold.released_at is None]
    twice = [device for device, count in Counter(hold.device_id for hold in open_holds).items() if count > 1]
    assert not twice, f"{twice} are held twice"
    for device in facts.devices.values():
        holders = [hold for hold in open_holds if hold.device_id == device.id]
        if device.state == DeviceState.HELD:
            assert [hold.attempt_id for hold in holders] == [device.attempt_id], f"{device.id} is held without a hold"
            assert _is_live(facts.attempts[device.attempt_id or ""].state), f"{device.id} is held by what has ended"
        for hold in holders:
            begun = facts.members[hold.member_id].state in BEGUN
            mine = device.state == DeviceState.HELD and device.attempt_id == hold.attempt_id
            assert mine or not begun, f"{hold.member_id} runs on {device.id}, which is {device.state}"


def _check_timer(facts: Facts, run: Run) -> None:
    """Something will happen to a live run, even if everybody else falls silent."""
    live = [row for row in facts.attempts.values() if row.run_id == run.id and _is_live(row.state)]
    if run.state in TERMINAL_RUN or run.state in (RunState.QUEUED, RunState.RETRY_WAIT):
        assert not live, f"{run.id} is {run.state} with the live attempt {live[0].id}"
        assert run.state != RunState.RETRY_WAIT or run.retry_at, f"{run.id} waits for ever"
        return
    assert live, f"{run.id} is {run.state} without a live attempt"
    (attempt,) = live
    members = [member for member in facts.members.values() if member.attempt_id == attempt.id]
    leased = any(member.state in BEGUN and facts.hosts[member.host_id].lost_at is None for member in members)
    drains = attempt.finishing_at is not None and all(member.state in TERMINAL_MEMBER for member in members)
    timed = attempt.state == AttemptState.DISPATCHED or drains
    assert leased or timed, f"{run.id} is {run.state}, {attempt.id} is {attempt.state}, and nothing will ever end it"


def _check_budget(run: Run) -> None:
    for spent, budget in ((run.user_failures, "user"), (run.infrastructure_failures, "infrastructure")):
        assert spent <= run.retries[budget] + 1, f"{run.id} failed {spent} times, with {run.retries[budget]} retries"


def _compare(facts: Facts, model: Model) -> None:
    def same(what: str, stands: dict[str, Any], expected: dict[str, Any]) -> None:  # Any: any column
        wrong = {name: (stands.get(name), expected.get(name)) for name in stands | expected}
        wrong = {name: pair for name, pair in wrong.items() if pair[0] != pair[1]}
        assert not wrong, f"{what}: stands, expected: {wrong}"

    newest = {run_id: facts.attempts.get(row.attempt_id or "") for run_id, row in facts.runs.items()}
    same("runs", _of(facts.runs, _run), _of(model.runs, lambda run: (run.state, run.fence, run.attempts)))
    same(
        "attempts",
        {name: _stage(row.state) for name, row in newest.items() if row is not None},
        {run.id: run.attempt for run in model.runs.values() if run.fence},
    )
    parts = {part.id: (part.state, part.acked, part.last, part.life or None) for part in model.parts}
    same("members", _of(facts.members, lambda row: (row.state, row.acked_seq, row.last_seq, row.incarnation_id)), parts)
    devices = {name: (state, holder.attempt_id if holder else None) for name, (state, holder) in model.devices.items()}
    same("devices", _of(facts.devices, lambda row: (row.state, row.attempt_id)), devices)
    same("hosts", _of(facts.hosts, lambda row: row.lost_at is not None), _of(model.hosts, lambda host: host.lost))


def _of(rows: Mapping[str, Any], show: Callable[[Any], object]) -> dict[str, Any]:  # Any: rows of any table
    return {name: show(row) for name, row in rows.items()}


def _run(row: Run) -> tuple[str, int, int]:
    return row.state, row.fence, row.attempts


def _stage(state: str) -> str:
    return "over" if not _is_live(state) else _STAGES.get(AttemptState(state), "begun")
