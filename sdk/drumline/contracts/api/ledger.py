"""Where the time of runs went: every second under a name, in time passed and in device-seconds. What members use."""

from drumline.contracts.base import HostId, Reply, RunId, Timestamp
from drumline.contracts.spent import Spent, SpentGroup
from drumline.contracts.usage import Usage


class LedgerLine(Reply):
    """What went into one thing."""

    name: Spent
    group: SpentGroup
    sentence: str
    """What the name says, for people."""
    wall_s: float
    """Time that passed; of a gang its members' mean."""
    device_s: float
    """Seconds of devices that were held meanwhile."""
    cost: float | None
    """Of these, by the operator's rates; None where a kind of device has none."""


class LedgerPlace(Reply):
    """What a run spent on one host; None before it had one. `wall_s` is the host's share of the time."""

    host: HostId | None
    host_name: str | None
    device_kind: str | None
    wall_s: float
    device_s: float
    cost: float | None
    lines: tuple[LedgerLine, ...]


class Ledger(Reply):
    """Where the time of one run went, from its submission to `until`; names in the order in which a run has them."""

    run: RunId
    began_at: Timestamp
    until: Timestamp
    """Its end; of a live run until when all of its members have told what they did."""
    wall_s: float
    device_s: float
    cost: float | None
    currency: str
    """What costs are in; empty where the operator names none."""
    lines: tuple[LedgerLine, ...]
    places: tuple[LedgerPlace, ...]


class LedgerSum(Reply):
    """Where the time of ended runs went: of one owner, host or project."""

    key: str
    """A principal, the id of a host, empty for the time without one, or the id of a project."""
    label: str
    runs: int
    wall_s: float
    device_s: float
    cost: float | None
    currency: str
    lines: tuple[LedgerLine, ...]


class TimePiece(Reply):
    """Consecutive stretches of one member's time, in seconds since the run was submitted, and what they went into."""

    begin_s: float
    end_s: float
    attempt: int | None
    """Its number; None between attempts."""
    host_name: str | None
    spent: dict[Spent, float]
    """Seconds by name; together `end_s - begin_s`."""


class TimeLane(Reply):
    """What one place of a run's gang did, attempt after attempt; of a live run until what its worker told last."""

    rank: int
    pieces: tuple[TimePiece, ...]


class MemberUsage(Reply):
    """What the processes of one member used of its host and devices, as its worker told it last, or until a step."""

    rank: int
    host: HostId
    host_name: str
    host_processors: int
    host_memory_bytes: int
    step: int | None
    """Steps done then, in the program's own count."""
    at: Timestamp | None
    """None where nothing was told, as by a worker of the release before, and in the first seconds of a run."""
    usage: Usage | None
