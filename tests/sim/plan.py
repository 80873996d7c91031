"""From a seed to a history: how large the fleet is, what is submitted, and which faults strike when.

Each history has its own few kinds of faults, dense in a short time: many kinds at once hide each other. A history is
data: one that broke is kept as it is, whatever becomes of this module.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

FAULTS_END_S = 110.0
"""From then on nothing new breaks, and what is broken is mended."""
_LAST_STRIKE_S = FAULTS_END_S - 5.0


class _Plan(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class HostPlan(_Plan):
    """One machine: its devices, how fast its clock runs, when it goes for good, whether it can be told from others."""

    devices: int
    rate: float = 1.0
    goes_at: float | None = None
    knows_its_place: bool = True


class Submission(_Plan):
    """One run."""

    at: float
    replicas: int
    user_retries: int
    run_limit_s: float | None
    endless: bool


class Fault(_Plan):
    """One strike. `host` is an index; `pick` in [0, 1) chooses among what is there then; `seconds` as the kind says."""

    at: float
    kind: str
    host: int
    pick: float
    seconds: float | None


class History(_Plan):
    """All that is laid out before it is lived through. `odds` are probabilities per occasion."""

    seed: int
    servers: int
    hosts: tuple[HostPlan, ...]
    submissions: tuple[Submission, ...]
    faults: tuple[Fault, ...] = ()
    odds: dict[str, float] = {}
    duplicated_notifications: float = 0.0
    forged_every_s: float = 0.0
    """Somebody who may write to the broker notifies hosts, on average so often; 0 for nobody."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault: how often it strikes in a history that has it, and how long it lasts."""

    name: str
    times: tuple[int, int]
    seconds: Callable[[random.Random], float | None] = lambda _: None


def _either(*spans: tuple[float, float]) -> Callable[[random.Random], float]:
    """From one of the spans; one that is named twice is twice as likely."""
    return lambda rng: rng.uniform(*rng.choice(spans))


def _jump_s(rng: random.Random) -> float:
    return rng.choice((rng.uniform(-8.0, 8.0), 3600.0, -3600.0, -3600.0))


def _offset_s(rng: random.Random) -> float:
    return rng.choice((-3600.0, 3600.0, rng.uniform(-60.0, 60.0)))


def _grace_s(rng: random.Random) -> float | None:
    return rng.choice((None, 0.0, 2.0))


_SHORT, _PAST_THE_LEASE = (1.0, 30.0), (40.0, 75.0)
KINDS = (
    Kind("kill_agent", (2, 5), _either((0.5, 5.0), (20.0, 75.0))),
    Kind("kill_shim", (1, 4)),
    Kind("kill_runner", (1, 4)),
    Kind("freeze_host", (1, 3), _either(_SHORT, _PAST_THE_LEASE, _PAST_THE_LEASE)),
    Kind("freeze_agent", (1, 3), _either(_SHORT, _PAST_THE_LEASE)),
    Kind("reboot", (1, 3), _either((3.0, 15.0), (60.0, 90.0))),
    Kind("lose_disk", (1, 2)),
    Kind("drain", (1, 3)),
    Kind("cut", (1, 4), _either(_SHORT, _PAST_THE_LEASE, _PAST_THE_LEASE)),
    Kind("clog", (2, 4), _either((10.0, 75.0))),
    Kind("crash_server", (1, 4)),
    Kind("freeze_server", (1, 3), _either((1.0, 14.0), (16.0, 75.0))),
    Kind("jump_clock", (1, 3), _jump_s),
    Kind("jump_host_clock", (1, 3), _offset_s),
    Kind("redis_away", (1, 2), _either((5.0, 60.0))),
    Kind("redis_flush", (1, 3)),
    Kind("cancel", (1, 4), _grace_s),
    Kind("late_requests", (1, 3), _either((0.0, 0.03), (0.03, 2.0), (5.0, 30.0))),
    Kind("lose_telemetry", (1, 2)),
)
_MOVE = Kind("move", (1, 2), _either((0.0, 0.1), _SHORT, _PAST_THE_LEASE, _PAST_THE_LEASE))
"""Strikes beside the others in a fifth of all histories."""
_ODDS = {
    "crash_before_commit": 0.02,
    "crash_after_commit": 0.02,
    "busy_writes": 0.05,
    "late_writes": 0.03,
    "slow_writes": 0.02,
    "failed_launches": 0.15,
    "loss": 0.2,
    "duplicates": 0.08,
    "delays": 0.06,
}
"""Faults with a probability per occasion, and the highest one."""


def plan(seed: int) -> History:
    """The history of a seed."""
    rng = random.Random(seed * 7919 + 1)
    hosts = _plan_hosts(rng)
    lasting = sum(host.devices for host in hosts if host.goes_at is None)
    calm = rng.random() < 0.03  # a history without a fault
    history = History(
        seed=seed,
        servers=rng.choice((1, 1, 2)),
        hosts=hosts,
        submissions=tuple(_plan_submission(rng, lasting) for _ in range(rng.randint(1, 4))),
        faults=() if calm else tuple(_plan_faults(rng, len(hosts))),
        odds={} if calm else _plan_odds(rng),
        duplicated_notifications=0.3 if rng.random() < 0.3 and not calm else 0.0,
    )
    if calm:
        return history
    forger = random.Random(f"{seed} forged")
    forged_every_s = forger.choice((0.05, 1.0, 10.0)) if forger.random() < 0.3 else 0.0
    return _with_moves(history.model_copy(update={"forged_every_s": forged_every_s}), random.Random(f"{seed} moves"))


def _with_moves(history: History, rng: random.Random) -> History:
    """Its own chances, so that all other histories are what they were before there were moves."""
    hosts = [host.model_copy(update={"knows_its_place": rng.random() > 0.1}) for host in history.hosts]
    moves = _strikes_of(_MOVE, rng, len(hosts)) if rng.random() < 0.2 else []
    return history.model_copy(update={"hosts": tuple(hosts), "faults": (*history.faults, *moves)})


def _plan_hosts(rng: random.Random) -> tuple[HostPlan, ...]:
    count = rng.choice((1, 2, 2, 3))
    one_goes = count > 1 and rng.random() < 0.2
    return tuple(
        HostPlan(
            devices=rng.choice((1, 2, 2)),
            rate=rng.uniform(0.99, 1.01) if rng.random() < 0.3 else 1.0,
            goes_at=rng.uniform(10.0, _LAST_STRIKE_S) if one_goes and number == 0 else None,
        )
        for number in range(count)
    )


def _plan_submission(rng: random.Random, devices: int) -> Submission:
    return Submission(
        at=rng.uniform(0.0, 50.0),
        replicas=min(rng.choice((1, 1, 2, 2, 3)), devices),
        user_retries=rng.choice((0, 0, 1)),
        run_limit_s=rng.choice((None, None, None, rng.uniform(5.0, 30.0))),
        endless=rng.random() < 0.2,
    )


def _plan_faults(rng: random.Random, hosts: int) -> list[Fault]:
    return [fault for kind in rng.sample(KINDS, rng.randint(1, 5)) for fault in _strikes_of(kind, rng, hosts)]


def _strikes_of(kind: Kind, rng: random.Random, hosts: int) -> list[Fault]:
    return [
        Fault(
            at=rng.triangular(3.0, _LAST_STRIKE_S, 25.0),
            kind=kind.name,
            host=rng.randrange(hosts),
            pick=rng.random(),
            seconds=kind.seconds(rng),
        )
        for _ in range(rng.randint(*kind.times))
    ]


def _plan_odds(rng: random.Random) -> dict[str, float]:
    names = rng.sample(sorted(_ODDS), rng.choice((0, 1, 1, 2, 3)))
    return {name: rng.uniform(0.2, 1.0) * _ODDS[name] for name in names}
