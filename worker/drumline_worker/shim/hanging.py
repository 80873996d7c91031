"""The shim's side of a hang: looks, lets the stacks be dumped, and names what it saw (rule P15)."""

import math

from drumline_worker.clock import boottime
from drumline_worker.processes import cpu_seconds, descendants
from drumline_worker.rundir import MemberPlan, RunDirectory
from drumline_worker.shim.messages import Place
from drumline_worker.shim.output import OutputBuffer
from drumline_worker.shim.spawn import Runner
from drumline_worker.shim.stacks import thread_states
from drumline_worker.shim.stopping import Action, Stopper
from drumline_worker.shim.tick import Tick
from drumline_worker.shim.watchdog import Watchdog

DUMP_S = 2.0
"""From the dump to the KILL of a process that is a gang by itself."""
GANG_DUMP_S = 6.0
"""The same in a gang: longer than a heartbeat, so that nobody dies before the others have dumped their stacks."""


class HangWatch:
    """Decides by itself, needing neither agent nor server; in a gang the server then tells the others."""

    def __init__(self, directory: RunDirectory, plan: MemberPlan, stopper: Stopper, output: OutputBuffer) -> None:
        self._program = str(directory.program)
        in_gang = plan.claimed.rendezvous.size > 1
        self._watchdog = Watchdog(plan.claimed.limits, in_gang=in_gang, now=boottime())
        self._kill_after_s = GANG_DUMP_S if in_gang else DUMP_S
        self._stopper = stopper
        self._output = output
        self._threads = ""
        self._written = False
        self._decided_at: float | None = None
        self.message = ""
        """What this watchdog saw; empty while it is content."""

    def hear(self, tick: Tick) -> None:
        """The program's process told where it is; what it tells once it is taken for hung says nothing of the cause.

        A process that was stopped goes on for its dump, and may come further than those that waited for it.
        """
        if self._decided_at is None:
            self._watchdog.hear(tick, boottime())

    def look(self, runner: Runner) -> None:
        """Looks whether a limit has run out; a program that is being stopped has another clock."""
        now = boottime()
        if self._watchdog.wants_cpu(now):
            self._watchdog.note_cpu(cpu_seconds([runner.pid, *descendants(runner.pid)]), now)
        overdue = self._watchdog.overdue(now)
        if overdue is not None and self._stopper.cause is None:
            self.message = str(overdue)
            self._decide(now)

    def told(self) -> None:
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
        return max(0.0, self._watchdog.next_at() - boottime()) if self._stopper.cause is None else math.inf

    def place(self) -> Place:
        """For the agent; a whole second is fine enough for what is only compared."""
        watchdog = self._watchdog
        return Place(
            activity=watchdog.tick.activity,
            advances=watchdog.tick.advances,
            collectives=watchdog.tick.collectives,
            changed_at=math.floor(watchdog.changed_at),
            heard_at=math.floor(watchdog.heard_at),
            overdue=bool(self.message),
            decided_at=self._decided_at,
        )

    def _decide(self, now: float) -> None:
        if self._decided_at is None:
            self._decided_at = now
            self._stopper.hang(now, self._kill_after_s)
