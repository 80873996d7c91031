"""Members of a gang save one checkpoint together, or none of them does and each is told why."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from drumline.checkpoints import gang_store
from drumline.checkpoints.gang_store import GangRank, GangStore
from drumline.checkpoints.store import CheckpointStore
from drumline.contracts.retention import CheckpointKey
from drumline.distribute.errors import InvalidValueError
from drumline.errors import CheckpointFailedError
from drumline.job import RunStopping
from support.processes import wait_until

SIZE = 3
RUN = "run_1"


class Gang:
    """Its members, each on a thread of its own."""

    def __init__(self, root: Path, pool: ThreadPoolExecutor, fence: int = 1) -> None:
        self.store = CheckpointStore(root, fence)
        self.compared: list[Path] = []
        self.members = [
            GangStore(CheckpointStore(root, fence), GangRank(RUN, rank, SIZE), self.compared.append, lambda: None)
            for rank in range(SIZE)
        ]
        self._pool = pool

    def begin(self, rank: int, step: int, content: str = "as ever") -> Future[Any]:
        """That member saves that step; without `content` it fails."""

        def write(path: Path) -> None:
            own = path / f"process_{rank}"
            (own / "deep").mkdir(parents=True)
            if not content:
                raise OSError(28, "No space left on device")
            (own / "deep" / "array").write_text(f"{content} of {rank} at {step}")

        member = self.members[rank]
        return self._pool.submit(member.follow if rank else member.write, step, write)

    def save(self, steps: Sequence[int], contents: Sequence[str] = ("as ever",) * SIZE) -> list[BaseException | None]:
        """Each member saves its step; what it raised."""
        saves = [self.begin(rank, *each) for rank, each in enumerate(zip(steps, contents, strict=True))]
        return [save.exception(timeout=30) for save in saves]

    def found(self, step: int) -> dict[str, str]:
        """What lies in the checkpoint of that step, all of which was verified."""
        state = self.store.verify(CheckpointKey(self.store.fence, step))
        return {str(file.relative_to(state)): file.read_text() for file in state.rglob("*") if file.is_file()}


@pytest.fixture
def new_gang(tmp_path: Path) -> Any:
    """Makes gangs. Any: a callable with a default."""
    with ThreadPoolExecutor(2 * SIZE) as pool:
        yield lambda fence=1: Gang(tmp_path, pool, fence)


def test_what_all_have_written_is_one_checkpoint(new_gang: Callable[[], Gang]) -> None:
    gang = new_gang()
    for step in (3, 7):
        assert gang.save([step] * SIZE) == [None] * SIZE

        assert gang.found(step) == {
            f"process_{rank}/deep/array": f"as ever of {rank} at {step}" for rank in range(SIZE)
        }
    assert gang.store.list_committed() == [(1, 7), (1, 3)]
    assert [path.parent.name for path in gang.compared] == ["draft", "draft"]
    assert [path.name for path in gang.store.drafts.glob(".save_*")] == [".save_2"]


def test_each_member_reads_where_the_state_is(new_gang: Callable[[], Gang]) -> None:
    gang = new_gang()
    saves = [gang.begin(rank, 5) for rank in range(SIZE)]
    committed = saves[0].result(timeout=30)

    assert {save.result(timeout=30) for save in saves[1:]} == {committed.state}
    assert gang.store.verify(committed.key, committed.manifest) == committed.state
    assert committed.size_bytes == sum(len(text) for text in gang.found(5).values())


def test_the_same_step_again_takes_the_place_of_the_first(new_gang: Callable[[], Gang]) -> None:
    gang = new_gang()
    gang.save([3] * SIZE)
    assert gang.save([3] * SIZE, ["again"] * SIZE) == [None] * SIZE

    assert gang.found(3)["process_2/deep/array"] == "again of 2 at 3"


@pytest.mark.parametrize("failing", range(SIZE))
def test_where_one_cannot_write_none_has_saved_and_the_next_save_goes_on(
    new_gang: Callable[[], Gang], failing: int
) -> None:
    gang = new_gang()
    gang.save([3] * SIZE)
    errors = gang.save([4] * SIZE, ["" if rank == failing else "new" for rank in range(SIZE)])

    assert isinstance(errors.pop(failing), OSError)
    for error in errors:
        assert isinstance(error, CheckpointFailedError)
        assert str(error).startswith("run.checkpoint of step 4 failed on rank ")
        assert "No space left on device" in str(error)
    assert gang.store.list_committed() == [(1, 3)]
    assert gang.save([5] * SIZE) == [None] * SIZE
    assert gang.store.list_committed() == [(1, 5), (1, 3)]


@pytest.mark.parametrize("rank", range(SIZE))
def test_where_one_has_no_place_to_write_all_are_told(new_gang: Callable[[], Gang], rank: int) -> None:
    gang = new_gang()
    blocked = gang.store.drafts / ".save_1"
    blocked.mkdir(parents=True)
    (blocked / "draft").write_text("in the way")
    save = gang.begin(rank, 3)
    assert isinstance(save.exception(timeout=30), FileExistsError)

    (blocked / "draft").unlink()
    others = [gang.begin(other, 3) for other in range(SIZE) if other != rank]
    for other in others:
        with pytest.raises(CheckpointFailedError, match=f"failed on rank {rank}: FileExistsError"):
            other.result(timeout=30)


def test_what_is_not_one_state_is_no_checkpoint(tmp_path: Path) -> None:
    def refuse(path: Path) -> None:
        raise InvalidValueError(f"{path.name} differs")

    with ThreadPoolExecutor() as pool:
        gang = Gang(tmp_path, pool)
        gang.members[0] = GangStore(gang.store, GangRank(RUN, 0, SIZE), refuse, lambda: None)
        first, *others = gang.save([3] * SIZE)

    assert isinstance(first, InvalidValueError)
    assert {str(error) for error in others} == {
        "run.checkpoint of step 3 failed on rank 0: InvalidValueError: state differs"
    }
    assert gang.store.list_committed() == []


def test_a_failed_part_leaves_room(new_gang: Callable[[], Gang]) -> None:
    gang = new_gang()
    gang.save([3] * SIZE, ["new", "", "new"])

    assert sorted(path.name for path in gang.store.drafts.glob(".save_1/draft/state/*")) == ["process_0", "process_2"]


def test_a_wait_ends_with_what_it_is_told(tmp_path: Path) -> None:
    def stop() -> None:
        raise RunStopping("the run was asked to stop")

    with ThreadPoolExecutor() as pool:
        gang = Gang(tmp_path, pool)
        gang.members = [
            GangStore(CheckpointStore(tmp_path, 1), GangRank(RUN, rank, SIZE), print, stop) for rank in range(SIZE)
        ]
        with pytest.raises(RunStopping):
            gang.begin(0, 3).result(timeout=30)
        with pytest.raises(CheckpointFailedError, match="rank 0: RunStopping"):
            gang.begin(1, 3).result(timeout=30)
        with pytest.raises(RunStopping):
            gang.members[1].read_choice()


def test_a_member_that_is_ahead_keeps_what_it_has_written(new_gang: Callable[[], Gang]) -> None:
    gang = new_gang()
    saves = [gang.begin(rank, 3) for rank in (1, 2)]
    ahead = gang.store.drafts / ".save_2"
    ahead.mkdir(parents=True)
    (ahead / "part_1").write_text("early")
    saves.append(gang.begin(0, 3))

    assert [save.exception(timeout=30) for save in saves] == [None] * SIZE
    assert (ahead / "part_1").read_text() == "early"


def test_members_that_save_different_steps_are_all_told(new_gang: Callable[[], Gang]) -> None:
    gang = new_gang()
    for error in gang.save([3, 4, 3]):
        assert isinstance(error, CheckpointFailedError)
        assert "rank 1 saves step 4 where rank 0 saves step 3" in str(error)
    assert gang.store.list_committed() == []


def test_nothing_is_committed_before_the_last_has_written_for_whom_it_says_that_it_waits(
    new_gang: Callable[[], Gang], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gang_store, "_TELL_AFTER_S", 0.0)
    gang, said = new_gang(), ""
    early = [gang.begin(rank, 3) for rank in (0, 1)]

    def told() -> bool:
        nonlocal said
        said += capfd.readouterr().err
        return "waits for rank 2;" in said or "waits for ranks" in said

    wait_until(told, timeout_s=30, what="rank 0 says for whom it waits")
    assert gang.store.list_committed() == []
    assert not any(save.done() for save in early)
    late = gang.begin(2, 3)
    assert [save.exception(timeout=30) for save in (*early, late)] == [None] * SIZE
    assert gang.store.list_committed() == [(1, 3)]


@pytest.mark.parametrize("choice", [{"step": 3, "path": "run_1/f1/step_3/state"}, {}, {"gone": "nothing is left"}])
def test_all_go_on_where_rank_0_does(new_gang: Callable[[], Gang], choice: dict[str, Any]) -> None:
    gang = new_gang()
    with ThreadPoolExecutor(SIZE) as pool:
        others = [pool.submit(member.read_choice) for member in gang.members[1:]]
        gang.members[0].choose(choice)

        assert [other.result(timeout=30) for other in others] == [choice, choice]


def test_what_an_attempt_left_behind_goes_and_its_checkpoints_stay(new_gang: Callable[[int], Gang]) -> None:
    first = new_gang(1)
    first.members[0].choose({})
    first.save([3] * SIZE)
    first.save([4] * SIZE, ["", "new", "new"])
    nothing = new_gang(2)
    nothing.members[0].choose({})
    nothing.save([5] * SIZE, ["new", "", "new"])

    later = new_gang(3)
    later.store.remove_partial()
    assert sorted(path.name for path in first.store.drafts.iterdir()) == ["step_3"]
    assert not nothing.store.drafts.exists()
