"""Which shelf of checkpoints a member has; those of a gang's members, which save together."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from drumline.contracts.worker_api import Claimed
from drumline.distribute.checkpoint.saved_parts import require_one_state
from drumline.distribute.errors import UnsupportedError
from drumline.errors import CheckpointFailedError, CheckpointGoneError
from drumline.local.checkpoint_store import CheckpointStore
from drumline.local.checkpoints import Found, Shelf
from drumline_worker.runner.channel import Channel
from drumline_worker.runner.gang_store import GangStore, Seat
from drumline_worker.runner.shelf import RegisteredShelf
from drumline_worker.runner.telemetry import Telemetry

_NO_STORE = (
    "the hosts of this run keep checkpoints each for itself, and a run over several needs one place that all of them "
    "see; start their workers with --checkpoint-dir on one volume, or submit it without "
    "collectives=jax, which puts it on one host"
)


class MemberShelf(Shelf, Protocol):
    """The shelf of one member of an attempt."""

    def registered(self, count: int) -> None:
        """The server knows the first `count` that were put here. Called from another thread."""


def open_shelf(
    root: Path, claimed: Claimed, channel: Channel, telemetry: Telemetry, on_wait: Callable[[], None]
) -> MemberShelf:
    """The shelf of this member. `root` holds a directory per run; `on_wait` as `GangStore` has it."""
    rendezvous = claimed.rendezvous
    store = CheckpointStore(root / claimed.run, claimed.fence)
    if rendezvous.size == 1:
        return RegisteredShelf(root, claimed, channel, telemetry, store)
    if not rendezvous.one_store:
        return NoShelf(claimed)
    seat = Seat(claimed.run, rendezvous.rank, rendezvous.size)
    gang = GangStore(store, seat, require_one_state, on_wait)
    if rendezvous.rank > 0:
        return FollowingShelf(root, claimed, telemetry, gang)
    return LeadingShelf(root, RegisteredShelf(root, claimed, channel, telemetry, gang), gang)


class NoShelf:
    """Of a gang whose hosts share no store: it has nothing and takes nothing."""

    alone = False

    def __init__(self, claimed: Claimed) -> None:
        self._resume_from = claimed.resume_from

    def put(self, step: int, write: Callable[[Path], None]) -> Path:
        """Raises UnsupportedError."""
        raise UnsupportedError(f"run.checkpoint at step {step}: {_NO_STORE}")

    def newest(self) -> Found | None:
        """None: there is none. Raises UnsupportedError where the run was told to go on from one."""
        if self._resume_from is not None:
            raise UnsupportedError(f"run.restore of {self._resume_from}: {_NO_STORE}")
        return None

    def registered(self, count: int) -> None:
        """There are none."""


class FollowingShelf:
    """Of a member of a gang that is not its rank 0: writes its part, and goes on where rank 0 does."""

    alone = False

    def __init__(self, root: Path, claimed: Claimed, telemetry: Telemetry, gang: GangStore) -> None:
        self._root = root
        self._run = claimed.run
        self._telemetry = telemetry
        self._gang = gang
        self._last: Found | None = None

    def put(self, step: int, write: Callable[[Path], None]) -> Path:
        """Writes this member's part; what was recorded up to the step goes ahead of it."""
        self._telemetry.flush()
        self._last = Found(step, self._gang.follow(step, write))
        return self._last.path

    def newest(self) -> Found | None:
        """The one that rank 0 chose. Raises CheckpointGoneError as it did, CheckpointFailedError where it could not."""
        if self._last is not None:
            return self._last
        choice = self._gang.chosen()
        if "gone" in choice:
            raise CheckpointGoneError(self._run, choice["gone"])
        if "failed" in choice:
            raise CheckpointFailedError(self._run, f"run.restore failed on rank 0: {choice['failed']}")
        return Found(choice["step"], self._root / choice["path"]) if choice else None

    def registered(self, count: int) -> None:
        """Rank 0 registers them."""


class LeadingShelf:
    """Of rank 0 of a gang: commits and registers what all have written, and chooses where all go on."""

    alone = False

    def __init__(self, root: Path, registered: RegisteredShelf, gang: GangStore) -> None:
        self._root = root
        self._registered = registered
        self._gang = gang

    def put(self, step: int, write: Callable[[Path], None]) -> Path:
        """As `RegisteredShelf.put`, once all members have written their parts."""
        return self._registered.put(step, write)

    def newest(self) -> Found | None:
        """As `RegisteredShelf.newest`; the other members hear of it."""
        try:
            found = self._registered.newest()
        except CheckpointGoneError as error:
            self._gang.choose({"gone": str(error)})
            raise
        except Exception as error:
            self._gang.choose({"failed": f"{type(error).__name__}: {error}"})
            raise
        choice = {"step": found.step, "path": str(found.path.relative_to(self._root))} if found else {}
        self._gang.choose(choice)
        return found

    def registered(self, count: int) -> None:
        """As `RegisteredShelf.registered`."""
        self._registered.registered(count)
