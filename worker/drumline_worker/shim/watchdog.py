"""Decides that a program hangs, from its ticks and from the processor time that it uses. Pure (rule P15).

What the user sets is kept to the letter; what nobody set is judged with care, since nobody asked for a limit:

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
from dataclasses import dataclass

from drumline.contracts.spec import Limits
from drumline_worker.host.shim_messages import RENDEZVOUS_S, Tick

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
