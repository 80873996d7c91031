"""Members of a gang save together, resume from the same checkpoint, and all hear where they cannot."""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import drumline.distribute as dist
from drumline.checkpoints.managers import Found, RegisteredManager, RunCheckpoints, open_manager
from drumline.checkpoints.store import CheckpointStore, Committed
from drumline.contracts.base import new_id
from drumline.contracts.retention import CheckpointKey
from drumline.contracts.spec import CheckpointSpec
from drumline.contracts.worker_api import Claimed, Rendezvous, ResumePoint
from drumline.errors import CheckpointFailedError, CheckpointGoneError
from support.start_orders import start_order


class Events:
    """Reports that are kept."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def report_saved(self, committed: Committed) -> None:
        self.told.append("checkpoint")

    def report_restored(self, point: ResumePoint | None, damaged: Sequence[str]) -> None:
        self.told.append("restored")

    def flush(self) -> None:
        self.told.append("flush")


class Gang:
    """Two members of one attempt, each on a thread of its own."""

    def __init__(self, root: Path, pool: ThreadPoolExecutor, **claimed: object) -> None:
        self.root = root
        self.claimed = start_order(new_id("mem")).claimed.model_copy(update=claimed)
        self.store = CheckpointStore(root / self.claimed.run, self.claimed.fence)
        self.events = [Events(), Events()]
        self.managers = [self._manager(rank) for rank in (0, 1)]
        self._pool = pool

    def again(self, **claimed: object) -> "Gang":
        """The next attempt of its run."""
        fresh = {"run": self.claimed.run, "fence": self.claimed.fence + 1, **claimed}
        return Gang(self.root, self._pool, **fresh)

    def both(self, act: Callable[[RegisteredManager, int], Any]) -> list[Future[Any]]:
        """What became of it in each member. Any: whatever they do."""
        begun = [self._pool.submit(act, manager, rank) for rank, manager in enumerate(self.managers)]
        for each in begun:
            each.exception(timeout=30)
        return begun

    def save(self, step: int) -> ResumePoint:
        """Both save that step; as the server would offer it later."""
        for saved in self.both(lambda manager, rank: manager.save(step, lambda path: write_part(path, rank))):
            saved.result()
        run, fence = self.claimed.run, self.claimed.fence
        manifest = (self.store.path(CheckpointKey(fence, step)) / "COMMITTED").read_text()
        return ResumePoint(checkpoint=new_id("chk"), run=run, fence=fence, step=step, manifest=manifest)

    def newest(self) -> list[Found | None]:
        """Where both would go on."""
        return [found.result() for found in self.both(lambda manager, rank: manager.newest())]

    def _manager(self, rank: int) -> RegisteredManager:
        own: Claimed = self.claimed.model_copy(update={"rendezvous": Rendezvous(rank=rank, size=2, one_store=True)})
        events = self.events[rank]
        return open_manager(self.root, own, events, lambda: None)


def write_part(path: Path, rank: int) -> None:
    """The part of a state of one text."""
    part = path / f"process_{rank}"
    part.mkdir(parents=True)
    tree = {"tree": "leaf", "kinds": ["text"], "texts": {"0": f"of {rank}"}, "empties": {}}
    (part / "tree.json").write_text(json.dumps({"processes": 2, "tree": tree, "arrays": {}}))


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    with ThreadPoolExecutor(4) as pool:
        yield Gang(tmp_path, pool)


def test_what_was_recorded_goes_ahead_of_the_part_and_rank_0_alone_registers(gang: Gang) -> None:
    gang.save(3)

    assert gang.events[0].told == ["flush", "checkpoint"]
    assert gang.events[1].told == ["flush"]


def test_both_go_on_where_they_saved_last(gang: Gang) -> None:
    gang.save(3)
    gang.save(4)
    found = gang.newest()

    assert found[0] == found[1]
    assert found[0] is not None
    assert (found[0].step, found[0].path) == (4, gang.store.verify(CheckpointKey(1, 4)))


def test_without_a_checkpoint_both_begin_at_the_beginning(gang: Gang) -> None:
    assert gang.newest() == [None, None]


def test_the_next_attempt_passes_over_a_damaged_checkpoint_in_all_its_members(gang: Gang) -> None:
    older, newer = gang.save(3), gang.save(4)
    (gang.store.path(CheckpointKey(1, 4)) / "state" / "process_1" / "tree.json").write_text("{}")
    later = gang.again(resume=(newer, older))
    found = later.newest()

    assert found[0] == found[1]
    assert found[0] is not None
    assert found[0].step == 3
    assert [events.told for events in later.events] == [["restored"], []]
    assert later.newest() == found, "asked again it is the same"


def test_both_hear_that_nothing_is_left_of_what_they_were_to_go_on_from(gang: Gang) -> None:
    gone = gang.again(resume_from=new_id("chk"))
    for found in gone.both(lambda manager, rank: manager.newest()):
        with pytest.raises(CheckpointGoneError, match="nothing is left of checkpoint chk_"):
            found.result()


def test_a_member_hears_that_rank_0_could_not_read(gang: Gang, monkeypatch: pytest.MonkeyPatch) -> None:
    later = gang.again(resume=(gang.save(3),))

    def fails(*_: object) -> Path:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(CheckpointStore, "verify", fails)
    first, second = later.both(lambda manager, rank: manager.newest())
    assert isinstance(first.exception(), OSError)
    with pytest.raises(CheckpointFailedError, match=r"rank 0: OSError: .*Input/output error"):
        second.result()


def test_what_cannot_be_deleted_fails_no_save(gang: Gang, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(CheckpointStore, "remove_partial", fails)
    gang.save(3)
    gang.save(4)
    assert gang.store.list_committed() == [(1, 4), (1, 3)]


def test_a_gang_saves_what_is_due_also_when_it_is_to_stop_and_after_a_save_that_failed() -> None:
    class Failing:
        saves_alone = False
        steps: list[int] = []  # noqa: RUF012 - one object

        def save(self, step: int, write: object) -> Path:
            self.steps.append(step)
            raise OSError(28, "No space left on device")

        def newest(self) -> None:
            return None

    manager = Failing()
    checkpoints = RunCheckpoints(manager, CheckpointSpec(every_steps=3), dist.OneDeviceStrategy("CPU:0"))
    for step in range(7):
        with suppress(OSError):
            checkpoints.offer({}, step, stopping=step == 3)
    assert manager.steps == [2, 5], "the other members, which may have saved, count from there too"
