"""What the protocol promises, in miniature: no database, no HTTP, no transactions. It tells what every request does."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from drumline.contracts.reasons import HOST_LOSSES, REASONS, Category, EndReason
from drumline.contracts.states import TERMINAL_MEMBER, TERMINAL_RUN, DeviceState, MemberState, RunState

CLAIM_US, DRAIN_US, TAKEOVER_US = 60_000_000, 120_000_000, 120_000_000
BACKOFF_US = (5_000_000, 15_000_000, 45_000_000)
BEGUN = frozenset({MemberState.CLAIMED, MemberState.STARTING, MemberState.RUNNING})
WAITING = frozenset({RunState.QUEUED, RunState.RETRY_WAIT})
_FOLLOWS = frozenset({EndReason.PEER_LOST, EndReason.CANCELLED})
_OWN_FAULTS = frozenset({EndReason.PROGRAM_ERROR, EndReason.BAD_PROGRAM})
OK, CONFLICT, NOT_FOUND = 200, 409, 404


@dataclass(eq=False)
class Part:
    """A member."""

    id: str
    attempt_id: str
    host: str
    rank: int
    run: "Run"
    fence: int
    state: MemberState = MemberState.PENDING
    life: str = ""
    """The incarnation that claimed it."""
    told: bool = False
    """Whether it ever named a phase."""
    acked: int = 0
    last: int | None = None
    reason: EndReason | None = None
    ended: int = 0
    came: int = 0
    """When its telemetry last came, or its end."""

    @property
    def gone(self) -> bool:
        return self.state in TERMINAL_MEMBER

    @property
    def drained(self) -> bool:
        return self.state is not MemberState.EXITED or self.acked >= (self.last or 0)


@dataclass(eq=False)
class Run:
    """A run, with the parts of its newest attempt."""

    id: str
    submitted: dict[str, Any]
    """`replicas`; retries `user` and `infrastructure`; `queue_s`."""
    queued: int
    state: RunState = RunState.QUEUED
    fence: int = 0
    attempts: int = 0
    attempt: str = "over"
    """dispatched, begun, finishing or over."""
    reason: EndReason | None = None
    """What the attempt ends of."""
    since: int = 0
    """When the attempt was dispatched, or began to finish; of RETRY_WAIT: its end."""
    parts: list[Part] = field(default_factory=list)
    failures: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    losses: dict[int, list[tuple[int, int, str]]] = field(default_factory=dict)
    """Of each attempt the hosts that it lost: when, rank, host."""

    def has_waited_long_enough(self, now: int) -> bool:
        queue_s = self.submitted["queue_s"]
        return queue_s is not None and self.queued + queue_s * 1_000_000 <= now


@dataclass(eq=False)
class Host:
    """A machine; its newest incarnation and lease."""

    id: str
    life: str = ""
    beat: int = 0
    lost: bool = False


class Model:
    """All of it. Requests answer with the status that the server must answer."""

    def __init__(self, now: int) -> None:
        self.runs: dict[str, Run] = {}
        self.hosts: dict[str, Host] = {}
        self.devices: dict[str, tuple[DeviceState, Part | None]] = {}
        self.parts: list[Part] = []
        """Of all attempts, oldest first."""
        self.now = now

    def live(self) -> list[Run]:
        return [run for run in self.runs.values() if run.state not in TERMINAL_RUN]

    # users

    def add(self, run_id: str, submitted: dict[str, Any], place: int) -> None:
        """Runs of one request are a microsecond apart."""
        self.runs[run_id] = Run(run_id, submitted, self.now + place)

    def cancel(self, run: Run) -> int:
        if run.state in (RunState.SUCCEEDED, RunState.FAILED):
            return CONFLICT
        if run.state in WAITING:
            run.state = RunState.CANCELLED
        elif run.state in (RunState.PLACED, RunState.RUNNING):
            run.state = RunState.CANCELLING
            if run.attempt == "dispatched" and all(part.state is MemberState.PENDING for part in run.parts):
                self._abandon(run)
                run.state = RunState.CANCELLED
            for part in run.parts:
                if part.state is MemberState.PENDING:
                    self._fence_off(part, EndReason.CANCELLED)
        return 202

    # workers

    def place(self, run: Run, attempt_id: str, members: list[tuple[str, str, int, list[str]]]) -> None:
        """The scheduler chose: `members` are id, host, rank and devices."""
        run.state, run.fence, run.attempt, run.since = RunState.PLACED, run.fence + 1, "dispatched", self.now
        run.parts = [Part(name, attempt_id, host, rank, run, run.fence) for name, host, rank, _ in members]
        self.parts += run.parts
        for part, (_, _, _, devices) in zip(run.parts, members, strict=True):
            self.devices.update((device, (DeviceState.HELD, part)) for device in devices)

    def register(self, host: Host, life: str, alive: set[str]) -> None:
        host.life, host.beat, host.lost = life, self.now, False
        for part in [part for part in self.parts if part.host == host.id]:
            if part.state in BEGUN and part.id in alive:
                part.life = life
            elif part.state in BEGUN:
                self._lose(part, EndReason.HOST_REBOOTED, DeviceState.FREE)
            if part.state is not MemberState.PENDING and part.id not in alive:
                self._devices(part, DeviceState.FREE, {DeviceState.HELD, DeviceState.RELEASING})

    def heard(self, host: Host, life: str) -> int:
        if life != host.life:
            return CONFLICT
        host.beat, host.lost = self.now, False
        return OK

    def news(self, host_id: str, life: str, known: list[Part]) -> dict[str, list[Part]]:
        """What the answer to a heartbeat tells of a worker that has the members `known`."""
        mine = [part for part in self.parts if part.host == host_id and not part.gone]
        return {
            "assigned": [
                part
                for part in mine
                if part.state is MemberState.PENDING
                or (part.state is MemberState.CLAIMED and part.life == life and part not in known)
            ],
            "cancelled": [
                part
                for part in mine
                if part.state is not MemberState.PENDING
                and (part.run.state is RunState.CANCELLING or part.run.attempt == "finishing")
            ],
            "fenced": [part for part in known if part not in mine],
        }

    def claim(self, part: Part, host: Host, life: str, fence: int) -> int:
        refused = self._refusal(part, host, life)
        if refused or fence != part.fence or part.fence != part.run.fence or part.gone:
            return refused or CONFLICT
        if part.state is not MemberState.PENDING:
            return OK if part.life == life else CONFLICT
        part.state, part.life = MemberState.CLAIMED, life
        if host.lost:
            host.beat, host.lost = self.now, False
        if part.run.attempt == "dispatched" and all(each.state is not MemberState.PENDING for each in part.run.parts):
            part.run.attempt, part.run.attempts = "begun", part.run.attempts + 1
        return OK

    def report(self, part: Part, host: Host, life: str, fence: int, *, first: int, phases: list[str]) -> int:
        """Telemetry from `first` on: of each event the phase that it names, or nothing."""
        refused = self._refusal(part, host, life)
        if refused or fence != part.fence or part.fence != part.run.fence or part.state is MemberState.PENDING:
            return refused or CONFLICT
        last = first + len(phases) - 1
        if last <= part.acked or first > part.acked + 1:
            return OK
        if part.run.attempt == "over" or part.state in (MemberState.LOST, MemberState.FENCED):
            return CONFLICT
        for phase in phases[part.acked + 1 - first :]:
            self._phase(part, phase)
        part.acked, part.came = last, self.now
        if part.state is MemberState.EXITED:
            self._settle(part.run)
        return OK

    def end(self, part: Part, host: Host, life: str, fence: int, *, reason: EndReason, last: int, proof: bool) -> int:
        refused = self._refusal(part, host, life)
        if refused or part.state is MemberState.PENDING:
            return refused or CONFLICT
        if proof:
            self._devices(part, DeviceState.FREE)
        if part.state in (MemberState.LOST, MemberState.FENCED) or not fence == part.fence == part.run.fence:
            return CONFLICT
        if part.state is not MemberState.EXITED:
            part.last, part.came = last, self.now
            self._over(part, MemberState.EXITED, reason)
            if not proof:
                self._devices(part, DeviceState.QUARANTINED, {DeviceState.HELD, DeviceState.RELEASING})
            self._settle(part.run)
        return OK

    # time

    def reap(self) -> None:
        """Everything whose time has come."""
        for run in self.live():
            if run.attempt == "dispatched" and run.since + CLAIM_US <= self.now:
                self._abandon(run)
                waits_on = RunState.FAILED if run.has_waited_long_enough(self.now) else RunState.QUEUED
                run.state = waits_on if run.state is RunState.PLACED else RunState.CANCELLED
        for run in self.live():
            comes = any(not part.drained and part.came + DRAIN_US > self.now for part in run.parts)
            awaited = comes or any(part.state in BEGUN for part in run.parts)
            if run.attempt == "finishing" and run.since + DRAIN_US <= self.now and not awaited:
                self._close(run)
            elif run.state is RunState.QUEUED and run.has_waited_long_enough(self.now):
                run.state = RunState.FAILED
            elif run.state is RunState.RETRY_WAIT and run.since <= self.now:
                run.state, run.queued = RunState.QUEUED, self.now
        for host in self.hosts.values():
            if not host.lost and host.beat + TAKEOVER_US <= self.now:
                host.lost = True
                for part in [part for part in self.parts if part.host == host.id and part.state in BEGUN]:
                    self._lose(part, EndReason.LOST, DeviceState.QUARANTINED)

    # what follows

    def _refusal(self, part: Part, host: Host, life: str) -> int:
        return CONFLICT if life != host.life else NOT_FOUND if part.host != host.id else 0

    def _phase(self, part: Part, phase: str) -> None:
        if not phase:
            return
        part.told = True
        if phase == "starting" and part.state is MemberState.CLAIMED:
            part.state = MemberState.STARTING
        elif phase == "running":
            if part.state in (MemberState.CLAIMED, MemberState.STARTING):
                part.state = MemberState.RUNNING
            have_run = all(each.state is MemberState.RUNNING or (each.gone and each.told) for each in part.run.parts)
            if have_run and part.run.state is RunState.PLACED:
                part.run.state = RunState.RUNNING

    def _over(self, part: Part, state: MemberState, reason: EndReason | None) -> None:
        part.state, part.reason, part.ended = state, reason, self.now
        if reason in HOST_LOSSES:
            part.run.losses.setdefault(part.fence, []).append((part.ended, part.rank, part.host))

    def _lose(self, part: Part, reason: EndReason, devices: DeviceState) -> None:
        self._over(part, MemberState.LOST, reason)
        self._devices(part, devices)
        self._settle(part.run)

    def _fence_off(self, part: Part, reason: EndReason | None = None) -> None:
        if part.gone:
            return
        unclaimed = part.state is MemberState.PENDING
        self._over(part, MemberState.FENCED, reason)
        self._devices(part, DeviceState.FREE if unclaimed else DeviceState.RELEASING)

    def _devices(self, part: Part, to: DeviceState, among: Iterable[DeviceState] = DeviceState) -> None:
        for device, (state, holder) in self.devices.items():
            if holder is part and state in among:
                self.devices[device] = (to, None if to is DeviceState.FREE else part)

    def _abandon(self, run: Run) -> None:
        for part in run.parts:
            self._fence_off(part)
        run.attempt = "over"

    def _failure(self, run: Run) -> Part | None:
        failed = [part for part in run.parts if part.gone and part.reason is not EndReason.COMPLETED]
        return min(failed, key=lambda part: (part.reason in _FOLLOWS, part.ended, part.rank), default=None)

    def _settle(self, run: Run) -> None:
        failed, gone = self._failure(run), all(part.gone for part in run.parts)
        if run.attempt == "over" or not (failed or gone):
            return
        reason = (failed.reason or EndReason.LOST) if failed else EndReason.COMPLETED
        if run.attempt == "dispatched":
            self._abandon(run)
            self._follow(run, reason)
            return
        if run.attempt == "begun":
            run.attempt, run.reason, run.since = "finishing", reason, self.now
        if gone and all(part.drained for part in run.parts):
            self._close(run)

    def _close(self, run: Run) -> None:
        run.attempt = "over"
        first = self._failure(run) if run.reason in _FOLLOWS else None
        self._follow(run, (first.reason or EndReason.LOST) if first else run.reason or EndReason.LOST)

    def _follow(self, run: Run, reason: EndReason) -> None:
        """The run goes where its attempt's end sends it."""
        facts, by_user = REASONS[reason], REASONS[reason].category is Category.USER
        poison = len({min(each)[2] for each in run.losses.values()}) > 1
        if reason is EndReason.COMPLETED:
            run.state = RunState.SUCCEEDED
        elif run.state is RunState.CANCELLING:
            run.state = RunState.FAILED if reason in _OWN_FAULTS else RunState.CANCELLED
        elif reason is EndReason.CANCELLED:
            run.state = RunState.CANCELLED
        elif reason in HOST_LOSSES and poison:
            run.state = RunState.FAILED
        else:
            before, free = run.failures[by_user], facts.category in (Category.CAPACITY, Category.CONTROL_PLANE)
            run.failures[by_user] += not free
            again = facts.retryable and (free or before < run.submitted["user" if by_user else "infrastructure"])
            run.state = RunState.RETRY_WAIT if again else RunState.FAILED
            run.since = self.now + BACKOFF_US[min(before, 2)]
