"""A checkpoint is whole or it is not there, wherever its writer dies and whatever becomes of its files."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from drumline.checkpoints.store import CheckpointStore, DamagedCheckpointError, Stage, claim_fence
from drumline.contracts.retention import CheckpointKey, select_kept
from drumline.contracts.spec import CheckpointSpec

_KILLED_SAVING = """
import os, signal, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from drumline.checkpoints.store import CheckpointStore, Stage

def write(path):
    path.mkdir()
    (path / "a").write_bytes(b"x" * 5000)
    if (step, stage) == (3, "writing"):
        os.kill(os.getpid(), signal.SIGKILL)
    (path / "b").write_bytes(b"y" * 10)

def reached(now):
    if (step, now) == (3, stage):
        os.kill(os.getpid(), signal.SIGKILL)

root = Path(sys.argv[1])
for stage in sys.argv[2:]:
    if (child := os.fork()) == 0:
        store = CheckpointStore(root / stage, fence=1, on_stage=reached)
        for step in (1, 2, 3):
            store.write(step, write)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
"""
CRASHES = {"writing": 2, Stage.WRITTEN: 2, Stage.LISTED: 2, Stage.RENAMED: 2, Stage.COMMITTED: 3}
"""Where a save of step 3 is killed, and the newest checkpoint that is there then."""


def write_files(path: Path) -> None:
    (path / "deep").mkdir(parents=True)
    (path / "deep" / "array").write_bytes(b"values" * 100)
    (path / "tree").write_bytes(b"{}")


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path, fence=2)


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("crashed")
    subprocess.run([sys.executable, "-c", _KILLED_SAVING, str(root), *CRASHES], check=True, timeout=120)
    return root


@pytest.mark.parametrize("stage", CRASHES)
def test_killed_at_any_point_of_a_save_the_last_whole_checkpoint_is_the_newest(crashed: Path, stage: str) -> None:
    later = CheckpointStore(crashed / stage, fence=2)
    newest = later.list_committed()[0]
    assert newest == CheckpointKey(1, CRASHES[stage])
    state = later.verify(newest)
    assert ((state / "a").read_bytes(), (state / "b").read_bytes()) == (b"x" * 5000, b"y" * 10)
    if CRASHES[stage] == 2:
        with pytest.raises(DamagedCheckpointError, match="was never committed"):
            later.verify(CheckpointKey(1, 3))
    later.remove_partial()
    left = {path.name for path in (crashed / stage / "f1").iterdir()}
    assert left == {f"step_{step}" for step in range(1, CRASHES[stage] + 1)}


def test_a_flipped_byte_in_any_file_is_found(store: CheckpointStore) -> None:
    committed = store.write(7, write_files)
    files = [path for path in committed.path.rglob("*") if path.is_file()]
    assert len(files) == 4
    for file in files:
        whole = file.read_bytes()
        file.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
        with pytest.raises(DamagedCheckpointError):
            store.verify(committed.key)
        file.write_bytes(whole)
    store.verify(committed.key, committed.manifest)


def test_files_that_are_missing_or_were_added_are_found(store: CheckpointStore) -> None:
    committed = store.write(7, write_files)
    array = committed.state / "deep" / "array"
    array.rename(committed.state / "moved")
    with pytest.raises(DamagedCheckpointError, match="state/deep/array is missing"):
        store.verify(committed.key)
    (committed.state / "moved").rename(array)
    (committed.state / "extra").touch()
    with pytest.raises(DamagedCheckpointError, match="state/extra is not listed"):
        store.verify(committed.key)


def test_a_whole_checkpoint_that_is_not_the_registered_one_is_refused(store: CheckpointStore) -> None:
    committed = store.write(7, write_files)
    with pytest.raises(DamagedCheckpointError, match="not the one that was committed"):
        store.verify(committed.key, "sha256:other")


def test_a_later_writer_counts_more_than_a_further_step(tmp_path: Path) -> None:
    for fence, step in ((1, 50), (2, 10), (2, 20)):
        CheckpointStore(tmp_path, fence).write(step, write_files)
    assert CheckpointStore(tmp_path, 3).list_committed() == [(2, 20), (2, 10), (1, 50)]


def test_every_process_without_a_server_gets_a_fence_of_its_own(tmp_path: Path) -> None:
    assert [claim_fence(tmp_path), claim_fence(tmp_path)] == [1, 2]


def test_who_knows_less_keeps_at_least_what_the_whole_would_keep() -> None:
    everything = {CheckpointKey(fence, step) for fence in (1, 2) for step in range(0, 50, 5)}
    policy = CheckpointSpec(keep=3, keep_every_steps=20)
    assert select_kept(everything, policy) == {(2, 45), (2, 40), (2, 35), (2, 20), (2, 0), (1, 40), (1, 20), (1, 0)}
    for known in (everything - {CheckpointKey(2, 45)}, {key for key in everything if key.fence == 1}):
        assert select_kept(everything, policy) & known <= select_kept(known, policy)


def test_a_checkpoint_that_a_writer_of_another_fence_is_deleting_too_is_simply_gone(tmp_path: Path) -> None:
    def write_many(state: Path) -> None:
        state.mkdir()
        for number in range(300):
            (state / str(number)).write_bytes(b"")

    key = CheckpointStore(tmp_path, fence=1).write(3, write_many).key
    stores = [CheckpointStore(tmp_path, fence) for fence in (1, 2, 3, 4)]
    together = Barrier(len(stores))

    def remove(store: CheckpointStore) -> None:
        together.wait()
        store.remove(key)

    with ThreadPoolExecutor(len(stores)) as threads:
        list(threads.map(remove, stores))

    assert not stores[0].path(key).exists()
