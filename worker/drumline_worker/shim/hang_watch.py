"""The shim's side of a hang: looks, lets the stacks be dumped, and names what it saw (rule P15)."""

import math
from datetime import datetime

from drumline.contracts.events import WAITING_FOR_TELEMETRY
from drumline.contracts.stacks import DispatchedProgram, MemberStanding
from drumline_worker.host.clock import boottime
from drumline_worker.host.processes import cpu_seconds, descendants
from drumline_worker.host.rundir import RunDirectory, StartOrder
from drumline_worker.host.shim_messages import ProgramStatus, Tick, ToldProgram
from drumline_worker.host.tally import Tally
from drumline_worker.shim.journal import Journal
from drumline_worker.shim.output import OutputBuffer
from drumline_worker.shim.spawn import Runner
from drumline_worker.shim.stacks import Seen, thread_states
from drumline_worker.shim.stopper import Action, Stopper
from drumline_worker.shim.watchdog import Watchdog

_MOST_PROGRAMS = 64
DUMP_S = 2.0
"""From the dump to the KILL of a process that is a gang by itself."""


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
