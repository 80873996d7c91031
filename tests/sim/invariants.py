"""What must hold after every commit: of the tables by themselves, and beside what really happens."""

import json
from typing import TYPE_CHECKING, Any

from drumline.contracts.reasons import EndReason
from drumline.contracts.states import MemberState, RunState
from sim.server import SETTINGS
from support.facts import Event, Facts, MemberRow, RunRow
from support.invariants import BEGUN, Watch

if TYPE_CHECKING:
    from sim.host import Host
    from sim.shim import Shim
    from sim.world import World

_HOSTS = (
    "SELECT h.id, h.last_heartbeat_at, i.id, i.place, i.boot_id"
    " FROM host h JOIN incarnation i ON i.id = h.incarnation_id"
)
_INCARNATION = "SELECT incarnation_id FROM member WHERE id = ?"
_OWNER = "SELECT incarnation_id, state FROM member WHERE id = ?"
_CLOCK_SLACK_S = 4.0
"""What jumps of the server's clock that are too small to be noticed can add up to, and clocks that run fast."""


class Invariants:
    """Compares each state of the tables with the one before and with the truth."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._watch = Watch()
        self._lost: set[str] = set()
        """Members that a loss was told of."""
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
        facts = self._watch.look(self._world.store.reader)
        for event in facts.events:
            self._follow(who, event, facts)
        for breach in self._watch.broken(facts):
            self._fail(breach)
        self._note_heartbeats(self._world.store.rows(_HOSTS))
        self._check_used_devices(facts)
        self._check_acknowledged(facts)
        for member in facts.members.values():
            self._check_end(member)
        for run in facts.runs.values():
            if run.state == RunState.SUCCEEDED:
                self._check_success(run, facts.members_of.get(run.attempt_id or "", []))

    def _fail(self, what: str) -> None:
        self._world.violation(what)

    # what events tell

    def _follow(self, who: str, event: Event, facts: Facts) -> None:
        body = event.body
        if event.kind == "member" and body["state"] == MemberState.LOST:
            self._check_loss(facts.members[body["member"]])
        elif event.kind == "result":
            self._take_result(body["value"])
        elif event.kind == "progress":
            self._take_progress(event.run_id, body["step"])
        elif event.kind == "gap":
            self._gaps.add(body["member"])
        if event.kind in ("state", "attempt", "member"):
            shown = " ".join(f"{value}"[-18:] for value in body.values())
            self._world.timeline.note(who, f"{event.run_id[-6:]} {event.kind} {shown}")

    def _take_result(self, attempt_id: str) -> None:
        if attempt_id in self._results:
            self._fail(f"the result of {attempt_id} was stored twice")
        self._results.add(attempt_id)

    def _take_progress(self, run_id: str, step: int) -> None:
        """Programs report the time, so each step is a later one."""
        if step <= self._steps.get(run_id, -1):
            self._fail(f"{run_id} stored step {step} after step {self._steps[run_id]}")
        self._steps[run_id] = step

    def _check_loss(self, member: MemberRow) -> None:
        """A lease runs out after T of silence, and not before."""
        if member.reason_code == EndReason.LOST and member.id not in self._lost:
            self._lost.add(member.id)
            silent_s = self._world.timeline.now - self._heard_at[member.incarnation_id or ""]
            if silent_s < SETTINGS.takeover_s - _CLOCK_SLACK_S:
                self._fail(f"{member.id} is LOST, and its host was heard of {silent_s:.1f} s ago")

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

    # what really happens

    def _check_used_devices(self, facts: Facts) -> None:
        """No device is given out that a program still uses."""
        truth = self._world.truth
        for shim in (*truth.running.values(), *truth.orphans.values()):
            attempt = shim.order.claimed.attempt
            for device in [facts.devices[name] for name in shim.devices] if self._counts(shim) else ():
                if device.state == "FREE" or device.attempt_id != attempt:
                    self._fail(f"{device.id} is {device.state} for {device.attempt_id}, but {shim.member} runs on it")

    def _counts(self, shim: "Shim") -> bool:
        """Whether it is wanted, or runs where its host is now: a device has the same name on every machine."""
        is_wanted = self._watch.seen.states.get(shim.member) in BEGUN
        is_seen = self._serving.get(shim.host.host_id) is shim.host and not shim.out_of_sight
        return is_wanted or is_seen

    def _check_end(self, member: MemberRow) -> None:
        has_completed = member.state == MemberState.EXITED and member.reason_code == EndReason.COMPLETED
        if has_completed and member.id not in self._world.truth.completed:
            self._fail(f"{member.id} is said to have completed, and did not")

    # who may say what

    def owner(self, member_id: str | None) -> str | None:
        """The incarnation under which a member lives; None for one that does not."""
        for incarnation, state in self._world.store.rows(_OWNER, member_id):
            if state in BEGUN:
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
        if self._watch.seen.states.get(shim.member) in BEGUN and shim.running:
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

    # runs

    def _check_acknowledged(self, facts: Facts) -> None:
        for key, run_id in self._world.user.acknowledged.items():
            if run_id not in facts.runs:
                self._fail(f"run {run_id} of {key} was acknowledged, and is gone")
        if len(facts.runs) > self._world.user.keys_used:
            self._fail(f"{len(facts.runs)} runs for {self._world.user.keys_used} keys")

    def _check_success(self, run: RunRow, members: list[MemberRow]) -> None:
        for member in members:
            if member.id not in self._world.truth.completed:
                self._fail(f"{run.id} SUCCEEDED, but {member.id} did not complete")
        expected = {"value": run.attempt_id}
        is_whole = self._gaps.isdisjoint(member.id for member in members)
        if (run.result is None or json.loads(run.result) != expected) and is_whole:
            self._fail(f"{run.id} SUCCEEDED in {run.attempt_id} with the result {run.result}")
