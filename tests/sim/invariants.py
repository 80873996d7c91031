"""What must hold after every commit, read from the tables by plain SQL, and from what really happens."""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from drumline.contracts.reasons import REASONS, Category, EndReason
from drumline.contracts.states import (
    ATTEMPT_TRANSITIONS,
    MEMBER_TRANSITIONS,
    RUN_TRANSITIONS,
    TERMINAL_ATTEMPT,
    TERMINAL_MEMBER,
    TERMINAL_RUN,
    AttemptState,
    MemberState,
    RunState,
)
from sim.server import SETTINGS

if TYPE_CHECKING:
    from sim.host import Host
    from sim.shim import Shim
    from sim.world import World

_RUNS = "SELECT id, state, fence, attempt_id, retry_at, retries, attempts, result FROM run"
_ATTEMPTS = "SELECT id, run_id, state, fence, number, reason_code, claim_deadline, finishing_at FROM attempt"
_LEASED = (
    "CASE m.incarnation_id WHEN h.incarnation_id THEN h.last_heartbeat_at IS NOT NULL AND h.lost_at IS NULL"
    " ELSE (SELECT i.last_heartbeat_at FROM incarnation i WHERE i.id = m.incarnation_id) IS NOT NULL END"
)
_MEMBERS = (
    f"SELECT m.id, m.attempt_id, m.state, m.fence, m.acked_seq, m.last_seq, {_LEASED}"
    " FROM member m JOIN host h ON h.id = m.host_id"
)
_DEVICES = "SELECT id, state, attempt_id, fence FROM device"
_HOLDS = "SELECT device_id, attempt_id FROM hold WHERE released_at IS NULL"
_EVENTS = "SELECT rowid, run_id, seq, kind, body FROM run_event WHERE rowid > ? ORDER BY rowid"
_HOSTS = (
    "SELECT h.id, h.last_heartbeat_at, i.id, i.place, i.boot_id"
    " FROM host h JOIN incarnation i ON i.id = h.incarnation_id"
)
_INCARNATION = "SELECT incarnation_id FROM member WHERE id = ?"
_OWNER = "SELECT incarnation_id, state FROM member WHERE id = ?"
_CLOCK_SLACK_S = 4.0
"""What jumps of the server's clock that are too small to be noticed can add up to, and clocks that run fast."""
_BEGUN = (MemberState.CLAIMED, MemberState.STARTING, MemberState.RUNNING)


class Invariants:
    """Compares each state of the tables with the one before and with the truth."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._run_states: dict[str, RunState] = {}
        self._attempt_states: dict[str, AttemptState] = {}
        self._member_states: dict[str, MemberState] = {}
        self._fences: dict[str, int] = {}
        self._acked: dict[str, int] = {}
        self._last_event = 0
        self._event_seqs: dict[str, int] = {}
        self._gaps: set[str] = set()
        """Members of which something is lost."""
        self._heard: dict[str, int] = {}
        self._heard_at: dict[str, float] = {}
        """True time of an incarnation's last sign of life."""
        self._serving: dict[str, Host] = {}
        self._results: set[str] = set()
        self._steps: dict[str, int] = {}

    def check(self, who: str) -> None:
        """All of them. `who` committed."""
        rows = self._world.store.rows
        events = rows(_EVENTS, self._last_event)
        for event in events:
            self._follow(who, event)
        runs, attempts, members = rows(_RUNS), rows(_ATTEMPTS), rows(_MEMBERS)
        devices = rows(_DEVICES)
        self._note_heartbeats(rows(_HOSTS))
        self._check_devices(devices, rows(_HOLDS), {row[0]: row[2] for row in attempts})
        self._check_members(members)
        self._check_acknowledged(runs)
        if not events:
            return
        self._check_attempts(attempts)
        self._check_runs(runs, attempts, members)

    def _fail(self, what: str) -> None:
        self._world.violation(what)

    # the history of each run is a path in the tables of moves

    def _follow(self, who: str, event: tuple[Any, ...]) -> None:
        number, run_id, seq, kind, text = event
        self._last_event = number
        body = json.loads(text)
        if seq != self._event_seqs.get(run_id, 0) + 1:
            self._fail(f"event {seq} of {run_id} follows event {self._event_seqs.get(run_id, 0)}")
        self._event_seqs[run_id] = seq
        if kind == "member":
            self._follow_member(body)
        elif kind == "state":
            self._move(self._run_states, RUN_TRANSITIONS, run_id, RunState(body["state"]))
        elif kind == "attempt":
            self._move(self._attempt_states, ATTEMPT_TRANSITIONS, body["attempt"], AttemptState(body["state"]))
        elif kind == "result":
            self._take_result(body["value"])
        elif kind == "progress":
            self._take_progress(run_id, body["step"])
        elif kind == "gap":
            self._gaps.add(body["member"])
        if kind in ("state", "attempt", "member"):
            shown = " ".join(f"{value}"[-18:] for value in body.values())
            self._world.timeline.note(who, f"{run_id[-6:]} {kind} {shown}")

    def _follow_member(self, body: dict[str, Any]) -> None:
        state = MemberState(body["state"])
        if self._member_states.get(body["member"]) == state:
            return  # only its phase
        self._move(self._member_states, MEMBER_TRANSITIONS, body["member"], state)
        if state is MemberState.LOST:
            self._check_loss(body["member"])

    def _take_result(self, attempt_id: str) -> None:
        if attempt_id in self._results:
            self._fail(f"the result of {attempt_id} was stored twice")
        self._results.add(attempt_id)

    def _take_progress(self, run_id: str, step: int) -> None:
        """Programs report the time, so each step is a later one."""
        if step <= self._steps.get(run_id, -1):
            self._fail(f"{run_id} stored step {step} after step {self._steps[run_id]}")
        self._steps[run_id] = step

    def _check_loss(self, member_id: str) -> None:
        """A lease runs out after T of silence, and not before."""
        if self._reason(member_id) == EndReason.LOST:
            ((incarnation,),) = self._world.store.rows(_INCARNATION, member_id)
            silent_s = self._world.timeline.now - self._heard_at[incarnation]
            if silent_s < SETTINGS.takeover_s - _CLOCK_SLACK_S:
                self._fail(f"{member_id} is LOST, and its host was heard of {silent_s:.1f} s ago")

    def _note_heartbeats(self, hosts: list[Any]) -> None:
        for host_id, heard_at, incarnation, place, boot_id in hosts:
            before = self._heard.get(host_id)
            if before != heard_at:
                self._heard[host_id] = heard_at
                self._note_machine(host_id, self._world.machine_at(place, boot_id))
                self._serving[host_id].server_heard_at = self._counted_from(before, heard_at)
                self._heard_at[incarnation] = self._world.timeline.now

    def _counted_from(self, before: int | None, stamp: int) -> float:
        """From when a lease with a new stamp counts: from now, or from earlier where it was pulled back too far."""
        now = self._world.timeline.now
        is_pulled_back = before is not None and stamp < before
        return min(now, self._world.when_servers_show(stamp)) if is_pulled_back else now

    def _note_machine(self, host_id: str, machine: "Host") -> None:
        """What runs on a machine that its host leaves is out of sight from then on, also if the host comes back."""
        before = self._serving.get(host_id, machine)
        if before is not machine:
            for shim in self._world.truth.shims_on(before):
                shim.out_of_sight = True
        self._serving[host_id] = machine

    def _move(self, known: dict[str, Any], moves: Any, name: str, to: Any) -> None:
        source = known.get(name)
        if source is not None and to not in moves[source]:
            self._fail(f"{name} moved from {source} to {to}")
        known[name] = to

    # devices

    def _check_devices(self, devices: list[Any], holds: list[Any], attempts: dict[str, str]) -> None:
        holders: dict[str, str] = {}
        for device_id, attempt_id in holds:
            if device_id in holders:
                self._fail(f"{device_id} is held by {holders[device_id]} and {attempt_id}")
            holders[device_id] = attempt_id
        truth = self._world.truth
        users = (*truth.running.values(), *truth.orphans.values())
        used = {device: shim for shim in users if self._counts(shim) for device in shim.devices}
        for device_id, state, attempt_id, _ in devices:
            if state == "HELD" and holders.get(device_id) != attempt_id:
                self._fail(f"{device_id} is HELD by {attempt_id} without a hold")
            if state == "HELD" and attempts.get(attempt_id) in TERMINAL_ATTEMPT:
                self._fail(f"{device_id} is HELD by {attempt_id}, which has ended {attempts[attempt_id]}")
            shim = used.get(device_id)
            if shim is not None and (state == "FREE" or attempt_id != shim.plan.claimed.attempt):
                self._fail(f"{device_id} is {state} for {attempt_id}, but {shim.member} runs on it")

    def _counts(self, shim: "Shim") -> bool:
        """Whether it is wanted, or runs where its host is now: a device has the same name on every machine."""
        is_wanted = self._member_states.get(shim.member) in _BEGUN
        is_seen = self._serving.get(shim.host.host_id) is shim.host and not shim.out_of_sight
        return is_wanted or is_seen

    # members

    def _check_members(self, members: list[Any]) -> None:
        completed = self._world.truth.completed
        for member_id, _, state, _, acked, last_seq, *_ in members:
            if acked < self._acked.get(member_id, 0):
                self._fail(f"telemetry of {member_id} went back from {self._acked[member_id]} to {acked}")
            if last_seq is not None and acked > last_seq:
                self._fail(f"{member_id} sent {acked} events, but ended with {last_seq}")
            self._acked[member_id] = acked
            known = self._member_states.setdefault(member_id, MemberState(state))
            if known != state:
                self._fail(f"{member_id} is {state}, its events say {known}")
            if state == "EXITED" and self._reason(member_id) == EndReason.COMPLETED and member_id not in completed:
                self._fail(f"{member_id} is said to have completed, and did not")

    def owner(self, member_id: str | None) -> str | None:
        """The incarnation under which a member lives; None for one that does not."""
        for incarnation, state in self._world.store.rows(_OWNER, member_id):
            if state in _BEGUN:
                owner: str = incarnation
                return owner
        return None

    def check_taken(self, member_id: str | None, owner: str, asker: str, path: str) -> None:
        """What another incarnation says of a live member is not taken: the server cannot know that it was harmless.

        `owner` was its incarnation before. Of a member that was given up meanwhile the last words are acknowledged.
        """
        ((incarnation, state),) = self._world.store.rows(_OWNER, member_id)
        is_given_up = state in (MemberState.LOST, MemberState.FENCED)
        if asker != owner and asker != incarnation and not is_given_up:
            self._fail(f"{member_id} lives under {incarnation}, and {path} of {asker} was taken")

    def check_unwanted(self, shim: "Shim") -> None:
        """An agent kills as strays only what the server has given up."""
        if self._member_states.get(shim.member) in _BEGUN and shim.running:
            self._fail(f"{shim.member} was killed as a stray, and the server wants it")

    def check_lease(self, shim: "Shim", sent_at: float) -> None:
        """What a shim counts its deadline from is not after the server's own count of the same lease."""
        begun_at = shim.host.true_time(sent_at)
        heard_at = self._heard_from(shim.host, begun_at)
        if begun_at > heard_at + _CLOCK_SLACK_S:
            late_s = begun_at - heard_at
            self._fail(f"the lease of {shim.member} began {late_s:.1f} s after the server's count of it")

    def _heard_from(self, machine: "Host", begun_at: float) -> float:
        """From when the server counts the machine's lease, where a message of `begun_at` was acknowledged last.

        A stamp that the clock, set back since, is about to reach again stays as it is, and counts from when it does.
        """
        if self._serving.get(machine.host_id) is not machine:
            return machine.server_heard_at
        shown_at = self._world.when_servers_show(self._heard[machine.host_id])
        is_about_to = shown_at <= begun_at + _CLOCK_SLACK_S
        return max(machine.server_heard_at, shown_at) if is_about_to else machine.server_heard_at

    def _reason(self, member_id: str) -> str | None:
        reason: str | None = self._world.store.rows("SELECT reason_code FROM member WHERE id = ?", member_id)[0][0]
        return reason

    # runs

    def _check_acknowledged(self, runs: list[Any]) -> None:
        known = {row[0] for row in runs}
        for key, run_id in self._world.user.acknowledged.items():
            if run_id not in known:
                self._fail(f"run {run_id} of {key} was acknowledged, and is gone")
        if len(known) > self._world.user.keys_used:
            self._fail(f"{len(known)} runs for {self._world.user.keys_used} keys")

    def _check_attempts(self, attempts: list[Any]) -> None:
        live: dict[str, str] = {}
        for attempt_id, run_id, state, *_ in attempts:
            known = self._attempt_states.setdefault(attempt_id, AttemptState(state))
            if known != state:
                self._fail(f"{attempt_id} is {state}, its events say {known}")
            if state not in TERMINAL_ATTEMPT:
                if run_id in live:
                    self._fail(f"{run_id} has two live attempts: {live[run_id]} and {attempt_id}")
                live[run_id] = attempt_id

    def _check_runs(self, runs: list[Any], attempts: list[Any], members: list[Any]) -> None:
        attempts_of: dict[str, list[Any]] = {}
        for attempt in attempts:
            attempts_of.setdefault(attempt[1], []).append(attempt)
        members_of: dict[str, list[Any]] = {}
        for member in members:
            members_of.setdefault(member[1], []).append(member)
        for run in runs:
            own = attempts_of.get(run[0], [])
            self._check_fence(run, own)
            self._check_budget(run, own)
            self._check_timer(run, own, members_of)
            if run[1] == RunState.SUCCEEDED:
                self._check_success(run, members_of.get(run[3], []))

    def _check_fence(self, run: Any, attempts: list[Any]) -> None:
        run_id, state, fence = run[0], run[1], run[2]
        if self._run_states.get(run_id) != state:
            self._fail(f"{run_id} is {state}, its events say {self._run_states.get(run_id)}")
        if fence < self._fences.get(run_id, 0):
            self._fail(f"the fence of {run_id} fell from {self._fences[run_id]} to {fence}")
        self._fences[run_id] = fence
        fences = sorted(attempt[3] for attempt in attempts)
        if fences != list(range(1, len(fences) + 1)) or (fences and fences[-1] != fence):
            self._fail(f"{run_id} has fence {fence} and attempts with {fences}")

    def _check_budget(self, run: Any, attempts: Iterable[Any]) -> None:
        by_user = by_us = 0
        for _, _, state, _, _, reason, *_ in attempts:
            if state in (AttemptState.FAILED, AttemptState.LOST) and reason is not None:
                category = REASONS[EndReason(reason)].category
                by_user += category is Category.USER
                by_us += category is Category.INFRASTRUCTURE
        budget = json.loads(run[5])
        if by_user > budget["user"] + 1 or by_us > budget["infrastructure"] + 1:
            self._fail(f"{run[0]} failed {by_user} and {by_us} times, with a budget of {budget}")

    def _check_timer(self, run: Any, attempts: list[Any], members_of: dict[str, list[Any]]) -> None:
        """Something will happen to a live run, even if everybody else falls silent."""
        run_id, state, _, _, retry_at, *_ = run
        live = [attempt for attempt in attempts if attempt[2] not in TERMINAL_ATTEMPT]
        if state in TERMINAL_RUN or state == RunState.QUEUED:
            if live:
                self._fail(f"{run_id} is {state} with the live attempt {live[0][0]}")
            return
        if state == RunState.RETRY_WAIT:
            if retry_at is None or live:
                self._fail(f"{run_id} waits for a retry at {retry_at}, live attempts: {live}")
            return
        if not live:
            self._fail(f"{run_id} is {state} without a live attempt")
            return
        attempt_id, _, attempt_state, _, _, _, claim_deadline, finishing_at = live[0]
        members = members_of.get(attempt_id, [])
        leased = any(member[2] in _BEGUN and member[6] for member in members)
        gone = all(member[2] in TERMINAL_MEMBER for member in members)
        waits = attempt_state == AttemptState.DISPATCHED and claim_deadline is not None
        drains = attempt_state == AttemptState.FINISHING and gone and finishing_at is not None
        if not (waits or leased or drains):
            self._fail(f"{run_id} is {state}, {attempt_id} is {attempt_state}, and nothing will ever end it")

    def _check_success(self, run: Any, members: list[Any]) -> None:
        run_id, attempt_id, result = run[0], run[3], run[7]
        for member in members:
            if member[0] not in self._world.truth.completed:
                self._fail(f"{run_id} SUCCEEDED, but {member[0]} did not complete")
        expected = {"value": attempt_id}
        is_whole = self._gaps.isdisjoint(member[0] for member in members)
        if (result is None or json.loads(result) != expected) and is_whole:
            self._fail(f"{run_id} SUCCEEDED in {attempt_id} with the result {result}")
