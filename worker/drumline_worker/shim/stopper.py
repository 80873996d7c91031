"""Decides when the program is asked to stop, gets TERM, and gets KILL. Pure. All times are CLOCK_BOOTTIME."""

from dataclasses import dataclass
from enum import StrEnum

from drumline.contracts.timing import LeaseTimes
from drumline_worker.host.shim_messages import StopCause


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
