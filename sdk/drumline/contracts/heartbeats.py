"""How server and workers keep in touch: the times of the protocol, and where a host is notified (P3, P4, P6).

Times are in seconds, as production has them; one factor scales all of them. The server is set to it
(`DRUMLINE_TIME_SCALE`) and tells its workers when they register; a shim keeps the one that its member was started
with. Tests of real processes run at 0.2, so that none waits out a lease. What depends on the speed of a machine, such
as how long an import or a dump of stacks takes, is not of the protocol: it does not scale.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

TimeScale = Annotated[float, Field(ge=0.1, le=10, allow_inf_nan=False)]
"""Below a tenth, heartbeats come too often to be told from load; above ten nobody waits for a lost host."""

HEARTBEAT_S = 5.0
SUSPECT_S = 15.0
"""Three heartbeats missed: shown, and nothing else."""
TAKEOVER_S = 120.0
"""A host silent for so long has lost its members; its shims are killed 10 s earlier, on their own clock."""
TERM_BEFORE_TAKEOVER_S = 20.0
KILL_BEFORE_TAKEOVER_S = 10.0
"""Longer than two clocks drift apart in a lease and than a kernel takes to end a process."""
KILL_AFTER_TERM_S = 10.0
CLAIM_S = 60.0
"""All members of an attempt must be claimed within this many seconds, else it expires."""
CLAIM_AGAIN_S = 0.5
"""How often a member asks whether its gang is complete."""
HEARTBEAT_ANSWER_S = 15.0
"""A heartbeat without an answer for so long is sent again; far less than a lease, of which one may be lost."""
HEARTBEAT_AGAIN_S = 1.0
"""A heartbeat that failed is repeated sooner than the next one is due."""
EARLY_HEARTBEAT_S = 1.0
"""Whoever can write to the broker can notify without end: it brings an early heartbeat in this time, and no more."""


def queue_name(host: str) -> str:
    """The Celery queue that only this host listens on."""
    return f"host.{host}"


@dataclass(frozen=True, slots=True)
class ServerTimes:
    """A server's times in force: those it is set to, times the factor."""

    scale: float
    heartbeat_s: float
    suspect_s: float
    takeover_s: float
    claim_s: float


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """What a shim does by its own clock when the server falls silent. `takeover_s` is in force, as it was told."""

    takeover_s: float
    scale: float = 1.0

    @property
    def term_s(self) -> float:
        """From the last acknowledged heartbeat to SIGTERM."""
        return self.takeover_s - TERM_BEFORE_TAKEOVER_S * self.scale

    @property
    def kill_s(self) -> float:
        """From the last acknowledged heartbeat to SIGKILL: before another host may begin."""
        return self.takeover_s - KILL_BEFORE_TAKEOVER_S * self.scale

    @property
    def kill_after_term_s(self) -> float:
        """What a program has to save after SIGTERM."""
        return KILL_AFTER_TERM_S * self.scale

    @property
    def silent_s(self) -> float:
        """After so long without the server nobody can tell a member of a gang whether another one waits."""
        return SUSPECT_S * self.scale

    @property
    def gang_dump_s(self) -> float:
        """From the dump of stacks to SIGKILL in a gang: the others hear of the hang by heartbeat, and dump theirs.

        The second is for what takes as long at any factor: a request, and the dump itself.
        """
        return HEARTBEAT_S * self.scale + 1.0
