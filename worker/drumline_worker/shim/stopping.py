"""Decides that a program hangs, when it is asked to stop, and when it gets TERM and KILL. Times are CLOCK_BOOTTIME.

`Stopper` and `Watchdog` are pure; `HangWatch` is the shim's side of a hang: it looks, lets the stacks be dumped, and
names what it saw (rule P15). The watchdog hears ticks and is told the processor time that the program uses. What the
user sets is kept to the letter; what nobody set is judged with care, since nobody asked for a limit:

    activity                        limit                        counts
    rendezvous                      rendezvous_s, else 300 s     since the process began
    before the first step or log    first_step_s, if set         since the program began
    after it, but for compiling     step_s, if set               since the last step or log
    in a step                       max(60 s, 10 usual steps)    since nothing changed
    in the first steps, compiling   first_step_s, else 900 s     since nothing changed
    own code, finishing             first_step_s, else 900 s     since nothing changed and no processor time was used

While the program, or another member of its gang, waits for telemetry to be taken, none of them counts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from drumline.contracts.heartbeats import LeaseTimes
from drumline.contracts.programs import WAITING_FOR_TELEMETRY, DispatchedProgram
from drumline.contracts.spec import Limits
from drumline.contracts.stacks import MemberStanding
from drumline.contracts.usage import DeviceMemory
from drumline_worker.host.messages import RENDEZVOUS_S, ProgramStatus, StopCause, Tick, ToldProgram
from drumline_worker.host.rundir import RunDirectory, StartOrder
from drumline_worker.host.system import boottime, cpu_seconds, descendants
from drumline_worker.host.tally import Tally
from drumline_worker.shim.intake import OutputBuffer
from drumline_worker.shim.journal import Journal
from drumline_worker.shim.runner_process import Runner, Seen, thread_states

_MOST_PROGRAMS = 64
DUMP_S = 2.0
"""From the dump to the KILL of a process that is a gang by itself."""
FIRST_STEP_S = 900.0
STEP_S = 60.0
USUAL_STEPS = 10.0
COMPUTING = 0.02
"""Share of one core from which own code counts as computing; a process that only waits uses far less."""
CPU_EVERY_S = 5.0
_FROZEN_S = 15.0
"""A shim that itself did not run for so long has no right to call others late."""


@dataclass(frozen=True, slots=True)
class Overdue:
    """A limit that ran out."""

    idle_s: float
    limit_s: float
    what: str

    def __str__(self) -> str:
        return f"No progress for {self.idle_s:.0f} s {self.what}; the limit was {self.limit_s:g} s."


@dataclass(frozen=True, slots=True)
class _Clock:
    limit_s: float
    since: float
    what: str


class Watchdog:
    """Hears ticks; `overdue` says when it is enough. Times are of one steady clock, in seconds."""

    def __init__(self, limits: Limits, *, in_gang: bool, now: float) -> None:
        self._limits = limits
        self.tick = Tick(activity="rendezvous" if in_gang else "own_code", advances=0)
        self.changed_at = now
        self.heard_at = now
        self._begun_at = now
        self._advanced_at = now
        self._looked_at = now
        self._cpu: tuple[float, float] | None = None
        self._paused_at: float | None = None

    @property
    def is_paused(self) -> bool:
        """Whether its clocks are paused."""
        return self._paused_at is not None

    def set_paused(self, is_paused: bool, now: float) -> None:
        """Pauses the clocks, or lets them run: who waits for telemetry to be taken can't progress (P12)."""
        if is_paused and self._paused_at is None:
            self._paused_at = now
        elif not is_paused and self._paused_at is not None:
            paused_s, self._paused_at = now - self._paused_at, None
            self._looked_at = now
            self._postpone(paused_s, now)

    def hear(self, tick: Tick, now: float) -> None:
        """The process told where it is."""
        before, self.tick, self.heard_at = self.tick, tick, now
        if tick.position != before.position:
            self.changed_at, self._cpu = now, None
        if tick.advances != before.advances or before.activity == "compiling":
            self._advanced_at = now
        if before.activity == "rendezvous" != tick.activity:
            self._begun_at = now

    def wants_cpu(self, now: float) -> bool:
        """Whether it has to be known what processor time was used so far."""
        if self.is_paused:
            return False
        due = self.changed_at if self._cpu is None else self._cpu[0]
        return self.tick.activity in ("own_code", "finishing") and now >= due + CPU_EVERY_S

    def note_cpu(self, used_s: float, now: float) -> None:
        """Processor time of the program's processes so far: own code that computes is no hang."""
        before, self._cpu = self._cpu, (now, used_s)
        if before is not None and used_s - before[1] >= COMPUTING * (now - before[0]):
            self.changed_at = now

    def overdue(self, now: float) -> Overdue | None:
        """The limit that has run out, if one has."""
        if self.is_paused:
            return None
        self._forgive_freeze(now)
        clock = self._clock()
        idle_s = now - clock.since
        return Overdue(idle_s, clock.limit_s, clock.what) if idle_s >= clock.limit_s else None

    def next_at(self) -> float:
        """When to look again."""
        if self.is_paused:
            return math.inf
        clock = self._clock()
        due = clock.since + clock.limit_s
        if self.tick.activity in ("own_code", "finishing"):
            due = min(due, (self.changed_at if self._cpu is None else self._cpu[0]) + CPU_EVERY_S)
        return due

    def _forgive_freeze(self, now: float) -> None:
        frozen_s = now - self._looked_at
        self._looked_at = now
        if frozen_s > _FROZEN_S:
            self._postpone(frozen_s, now)

    def _postpone(self, seconds: float, now: float) -> None:
        """Moves all clocks on by so many seconds, none beyond now."""
        self.changed_at = min(now, self.changed_at + seconds)
        self.heard_at = min(now, self.heard_at + seconds)
        self._advanced_at = min(now, self._advanced_at + seconds)
        self._begun_at = min(now, self._begun_at + seconds)
        self._cpu = None

    def _clock(self) -> _Clock:
        limits, tick = self._limits, self.tick
        first_step_s = limits.first_step_s or FIRST_STEP_S
        if tick.activity == "rendezvous":
            return _Clock(limits.rendezvous_s or RENDEZVOUS_S, self._begun_at, "on the way to its rendezvous")
        if limits.first_step_s and tick.advances == 0:
            return _Clock(first_step_s, self._begun_at, "before the first step or log")
        if limits.step_s and tick.advances and tick.activity in ("own_code", "in_step"):
            return _Clock(limits.step_s, self._advanced_at, f"after {self._done}")
        if tick.activity == "in_step" and tick.usual_s is not None:
            limit_s = max(STEP_S, USUAL_STEPS * tick.usual_s)
            return _Clock(limit_s, self.changed_at, f"in a step, after {self._done}")
        where = {
            "in_step": "in a step",
            "compiling": "while compiling",
            "own_code": "in the program's own code, which used no processor time",
            "finishing": "while it finished, without using processor time",
        }[tick.activity]
        return _Clock(first_step_s, self.changed_at, f"{where}, after {self._done}")

    @property
    def _done(self) -> str:
        return f"{self.tick.advances} step{'s' * (self.tick.advances != 1)} or logs"


class Action(StrEnum):
    """What is due."""

    DUMP = "dump"
    ASK = "ask"
    TERM = "term"
    KILL = "kill"


@dataclass(frozen=True, slots=True)
class _Step:
    at: float
    action: Action
    cause: StopCause


class Stopper:
    """Knows what is due next, from the server's wishes and from the lease that heartbeats extend."""

    def __init__(self, lease: LeaseTimes, alive_at: float) -> None:
        self._lease = lease
        self._alive_at = alive_at
        self._requested: list[_Step] = []
        self.done: dict[Action, StopCause] = {}
        """What was carried out, and for which cause."""

    def extend(self, alive_at: float) -> None:
        """The server acknowledged a heartbeat sent at `alive_at`; older news than known is ignored."""
        self._alive_at = max(self._alive_at, alive_at)

    def stop(self, cause: StopCause, grace_s: float | None, now: float) -> None:
        """Asks at once, TERM after `grace_s`, KILL 10 s after it; KILL at once without a grace."""
        if grace_s is None:
            self._requested.append(_Step(now, Action.KILL, cause))
            return
        term_at = now + grace_s
        self._requested += [
            _Step(now, Action.ASK, cause),
            _Step(term_at, Action.TERM, cause),
            _Step(term_at + self._lease.kill_after_term_s, Action.KILL, cause),
        ]

    def hang(self, now: float, kill_after_s: float) -> None:
        """The program hangs: its stacks now, KILL when there was time for them."""
        if Action.DUMP in self.done:
            return
        self._requested += [
            _Step(now, Action.DUMP, StopCause.HANG),
            _Step(now + kill_after_s, Action.KILL, StopCause.HANG),
        ]

    def due(self, now: float) -> tuple[Action, StopCause] | None:
        """The strongest action due and not yet carried out; it counts as carried out from now on."""
        ready = [step for step in self._list_pending() if step.at <= now]
        # After a freeze several are due at once, and the weaker would only take time that is over. Stacks go before
        # TERM, which may end the process that they are wanted of.
        for action in (Action.KILL, Action.DUMP, Action.TERM, Action.ASK):
            step = min((step for step in ready if step.action is action), key=lambda step: step.at, default=None)
            if step is not None:
                self._carry_out(step, now)
                return step.action, step.cause
        return None

    def next_at(self) -> float | None:
        """When something is due next; None once killed."""
        return min((step.at for step in self._list_pending()), default=None)

    @property
    def cause(self) -> StopCause | None:
        """Why the program is being stopped: the cause of the strongest action so far."""
        order = (Action.KILL, Action.DUMP, Action.TERM, Action.ASK)
        strongest = (self.done[action] for action in order if action in self.done)
        return next(strongest, None)

    def _carry_out(self, step: _Step, now: float) -> None:
        self.done.setdefault(step.action, step.cause)
        if step.action is Action.TERM:
            # Fixed from here on: a late acknowledgement would put off the KILL of the lease.
            self._requested.append(_Step(now + self._lease.kill_after_term_s, Action.KILL, step.cause))

    def _list_pending(self) -> list[_Step]:
        """A stronger action carried out makes the weaker ones pointless."""
        if Action.KILL in self.done:
            return []
        steps = [
            *self._requested,
            _Step(self._alive_at + self._lease.term_s, Action.TERM, StopCause.LOST),
            _Step(self._alive_at + self._lease.kill_s, Action.KILL, StopCause.LOST),
        ]
        weaker = {Action.ASK, Action.TERM} if Action.TERM in self.done else set()
        return [step for step in steps if step.action not in self.done and step.action not in weaker]


class HangWatch:
    """Decides by itself, needing neither agent nor server; in a gang the server then tells the others."""

    def __init__(
        self, directory: RunDirectory, order: StartOrder, stopper: Stopper, output: OutputBuffer, journal: Journal
    ) -> None:
        self._program = str(directory.program)
        in_gang = order.claimed.rendezvous.size > 1
        self._watchdog = Watchdog(order.claimed.limits, in_gang=in_gang, now=boottime())
        self._in_gang = in_gang
        self._journal = journal
        self._waits = self._peer_waits = False
        self._server_heard_at = order.alive_at
        self._silent_s = order.lease.silent_s
        self._kill_after_s = order.lease.gang_dump_s if in_gang else DUMP_S
        self._stopper = stopper
        self._output = output
        self._programs: dict[int, DispatchedProgram] = {}
        self._told = 0
        self._threads = ""
        self._written = False
        self._decided_at: float | None = None
        self.message = ""
        """What this watchdog saw; empty while it is content."""

    def hear(self, told: Tick | ToldProgram) -> None:
        """The program's process told where it is; what it tells once it is taken for hung says nothing of the cause.

        A stopped process is resumed for its dump, and may come further than those that waited for it.
        """
        if isinstance(told, ToldProgram):
            self._told += 1
            self._programs.pop(self._told - _MOST_PROGRAMS, None)
            self._programs[self._told] = told.program
        elif self._decided_at is None:
            self._watchdog.hear(told, boottime())

    def device_memory(self) -> Sequence[DeviceMemory]:
        """Of the member's devices, as its process told it last."""
        return self._watchdog.tick.devices

    def standing(self, asked_at: datetime, seen: Seen, tally: Tally) -> MemberStanding:
        """Where the program stands, for whoever asked at `asked_at`."""
        tick, now = self._watchdog.tick, boottime()
        return MemberStanding(
            asked_at=asked_at,
            activity=WAITING_FOR_TELEMETRY if self._waits else tick.activity,
            advances=tick.advances,
            idle_s=max(0.0, now - self._watchdog.changed_at),
            silent_s=max(0.0, now - self._watchdog.heard_at),
            step=tally.step,
            program=self._programs.get(tally.program),
            python=seen.python,
            threads=seen.threads,
            missing=seen.missing,
        )

    def look(self, runner: Runner) -> None:
        """Looks whether a limit has run out; a program that is being stopped has another clock."""
        now = boottime()
        self._watchdog.set_paused(self._is_paused(now), now)
        if self._watchdog.wants_cpu(now):
            self._watchdog.note_cpu(cpu_seconds([runner.pid, *descendants(runner.pid)]), now)
        overdue = self._watchdog.overdue(now)
        if overdue is not None and self._stopper.cause is None:
            self.message = str(overdue)
            self._decide(now)

    def wait(self, waits: bool) -> None:
        """Whether the program is made to wait, as its spool is full."""
        self._waits = waits

    def peer_waits(self, waits: bool) -> None:
        """Whether another member of the gang is made to wait."""
        self._peer_waits = waits

    def record_server_contact(self, at: float) -> None:
        """The server acknowledged a heartbeat sent at `at`, CLOCK_BOOTTIME."""
        self._server_heard_at = max(self._server_heard_at, at)

    def on_gang_hang(self) -> None:
        """The server says that the gang hangs."""
        self._decide(boottime())

    def dump(self, runner: Runner) -> None:
        """Lets the runner write its stacks; they come through its pipe."""
        self._threads = thread_states(runner.pid)
        runner.stacks.ask(runner.pid)

    def write_stacks(self, runner: Runner) -> None:
        """Puts what came into the log, once."""
        if Action.DUMP not in self._stopper.done or self._written:
            return
        self._written = True
        runner.stacks.read()
        self._output.note(runner.stacks.text(self._threads, self.message or "the gang hangs", self._program))

    def patience(self) -> float:
        """Seconds until there is something to look at."""
        if self._stopper.cause is not None or self._watchdog.is_paused:
            return math.inf
        return max(0.0, self._watchdog.next_at() - boottime())

    def status(self) -> ProgramStatus:
        """For the agent; a whole second is fine enough for what is only compared."""
        watchdog = self._watchdog
        return ProgramStatus(
            activity=WAITING_FOR_TELEMETRY if self._waits else watchdog.tick.activity,
            advances=watchdog.tick.advances,
            collectives=watchdog.tick.collectives,
            changed_at=math.floor(watchdog.changed_at),
            heard_at=math.floor(watchdog.heard_at),
            overdue=bool(self.message),
            decided_at=self._decided_at,
            spooled_seq=self._journal.last_seq,
            output_bytes=self._output.size_bytes,
        )

    def _is_paused(self, now: float) -> bool:
        """In a gang also while a peer may wait: then the program waits for the peer in a collective."""
        in_doubt = self._peer_waits or now - self._server_heard_at > self._silent_s
        return self._waits or (self._in_gang and in_doubt)

    def _decide(self, now: float) -> None:
        if self._decided_at is None:
            self._decided_at = now
            self._stopper.hang(now, self._kill_after_s)
