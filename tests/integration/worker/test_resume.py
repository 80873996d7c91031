"""A run that was interrupted resumes where it stood: its reductions are those of a run left alone, bit for bit."""

import random
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from drumline.checkpoints.store import CheckpointStore
from drumline.contracts.base import new_id
from drumline.contracts.reasons import EndReason
from drumline.contracts.retention import CheckpointKey
from drumline.contracts.spec import CentralStorageSpec, CheckpointSpec, MirroredSpec, OneDeviceSpec, StrategySpec
from drumline.contracts.worker_api import ResumePoint
from support.worker_process import WorkerProcess
from support.worker_reports import MemberRecord
from support.worker_server import WorkerServer

STEPS = 30
DOOMED = STEPS - 3
"""The step after which an attempt that is to be killed waits for it, if it comes so far."""
PROGRAM = """
import os
import time

import jax.numpy as jnp
import numpy as np

import drumline.distribute as dist


def main(run, *, pause_s: float = 0.02, waits_at: int = -1):
    rows = np.linspace(-1, 1, 22, dtype=np.float32)
    dataset = dist.Dataset.from_tensor_slices(rows).shuffle(22, seed=3).batch(8).repeat(10)  # 8, 8 and 6 rows
    with run.strategy.scope():
        w = dist.Variable(jnp.float32(1), name="w", aggregation="mean")
    batches = iter(run.strategy.distribute_dataset(dataset))
    state = run.restore({"w": w, "batches": batches})

    def step(x):
        total, count = dist.all_reduce("sum", ((x * w.value).sum(), jnp.float32(len(x))))
        w.assign_sub(0.1 * total / count)
        return x * w.value

    for number, batch in enumerate(batches, start=run.next_step):
        out = run.strategy.run(step, args=(batch,))
        run.strategy.reduce("mean", out, axis=0, name="out")
        run.log(step=number, w=w.value)
        run.checkpoint(state, step=number)
        while number == waits_at and not os.path.exists("go"):
            time.sleep(0.02)
        time.sleep(pause_s)
    return float(w.value)
"""
STRATEGIES: dict[str, tuple[StrategySpec, int]] = {
    "mirrored": (MirroredSpec(), 4),
    "central_storage": (CentralStorageSpec(), 4),
    "one_device": (OneDeviceSpec(), 1),
}
Values = dict[tuple[int, str, str], Any]  # Any: what went in and came out


class Attempts:
    """The attempts of one run, as the server would make them."""

    def __init__(self, server: WorkerServer, worker: WorkerProcess, kind: str = "mirrored", **policy: int) -> None:
        self.server, self.worker = server, worker
        self.run = new_id("run")
        self.members: list[MemberRecord] = []
        self.store = CheckpointStore(worker.data_dir / "checkpoints" / self.run, fence=1_000)
        self._strategy, self._replicas = STRATEGIES[kind]
        self._policy = CheckpointSpec(**{"every_steps": 4, "keep": 2, **policy})
        self._version = new_id("ver")
        self._ids: dict[CheckpointKey, str] = {}

    def start(
        self, *, without: Sequence[CheckpointKey] = (), pause_s: float = 0.02, waits_at: int = -1
    ) -> MemberRecord:
        """The next attempt; the server never heard of the checkpoints `without`."""
        member = self.server.assign(
            PROGRAM,
            run=self.run,
            fence=len(self.members) + 1,
            strategy=self._strategy,
            replicas=self._replicas,
            checkpoint=self._policy,
            version=self._version,
            parameters={"pause_s": pause_s, "waits_at": waits_at},
            resume=tuple(point for point in self.registered() if CheckpointKey(point.fence, point.step) not in without),
        )
        self.members.append(member)
        return member

    def registered(self) -> list[ResumePoint]:
        """What the server knows, best first."""
        points = [
            ResumePoint(
                checkpoint=self._ids.setdefault(CheckpointKey(member.fence, event.step), new_id("chk")),
                run=self.run,
                fence=member.claimed.fence,
                step=event.step,
                manifest=event.manifest,
            )
            for member in self.members
            for event in member.of_kind("checkpoint")
        ]
        return sorted(points, key=lambda point: (point.fence, point.step), reverse=True)

    def kill_at(self, member: MemberRecord, step: int) -> None:
        """SIGKILL for the program once it has reported `step`."""
        self.server.wait(lambda: _last_step(member) >= step, f"{member.id} came to step {step}")
        for process in self.worker.program_of(member):
            process.send_signal(signal.SIGKILL)
        assert self.server.wait_drained(member).reason == EndReason.KILLED, member.log

    def values(self) -> Values:
        """Every reduction of the run: a later attempt's replaces what was rolled back."""
        found: Values = {}
        for member in self.members:
            for event in member.of_kind("reduction"):
                found[event.step, event.name, event.origin] = (event.inputs, event.counts, event.result)
        return found


def _last_step(member: MemberRecord) -> int:
    return max((int(event.step) for event in member.of_kind("reduction")), default=-1)


def complete(attempts: Attempts, member: MemberRecord) -> MemberRecord:
    assert attempts.server.wait_drained(member).reason == EndReason.COMPLETED, member.log
    return member


def first_step(member: MemberRecord) -> int:
    return min(int(event.step) for event in member.of_kind("reduction"))


_ALIKE = pytest.mark.long("as with mirrored replicas, whose checkpoint has most parts")


@pytest.mark.parametrize(
    "kind", ["mirrored", pytest.param("central_storage", marks=_ALIKE), pytest.param("one_device", marks=_ALIKE)]
)
def test_killed_at_any_step_a_run_gives_the_reductions_of_one_left_alone(
    server: WorkerServer, worker: WorkerProcess, kind: str
) -> None:
    left_alone = Attempts(server, worker, kind)
    expected = complete(left_alone, left_alone.start(pause_s=0))
    assert {step for step, _, _ in left_alone.values()} == set(range(STEPS))
    assert any(len(set(event.counts)) > 1 for event in expected.of_kind("reduction")) == (kind != "one_device")

    dice = random.Random(kind)
    disturbed = Attempts(server, worker, kind)
    disturbed.kill_at(disturbed.start(waits_at=DOOMED), dice.randrange(5, 15))
    second = disturbed.start(waits_at=DOOMED)
    disturbed.kill_at(second, first_step_after(disturbed, second) + dice.randrange(8))
    last = complete(disturbed, disturbed.start(pause_s=0))

    assert first_step(last) > 0
    assert disturbed.values() == left_alone.values()
    assert last.result == expected.result


def first_step_after(attempts: Attempts, member: MemberRecord) -> int:
    attempts.server.wait(lambda: _last_step(member) >= 0, f"{member.id} made a step")
    return first_step(member)


def test_damaged_and_unregistered_checkpoints_are_passed_over(server: WorkerServer, worker: WorkerProcess) -> None:
    attempts = Attempts(server, worker, "one_device", keep=5)
    attempts.kill_at(attempts.start(waits_at=DOOMED), 20)
    newest, second, third, *_ = [CheckpointKey(point.fence, point.step) for point in attempts.registered()]
    flip_a_byte(attempts.store.path(second))

    member = complete(attempts, attempts.start(without=[newest], pause_s=0))

    (restored,) = member.of_kind("restored")
    ids = {CheckpointKey(point.fence, point.step): point.checkpoint for point in attempts.registered()}
    assert (restored.checkpoint, restored.step, restored.damaged) == (ids[third], third.step, (ids[second],))
    assert first_step(member) == third.step + 1
    assert "passing over a damaged checkpoint" in member.log


@pytest.mark.parametrize("offered", [True, False], ids=["damaged", "deleted"])
def test_run_that_was_told_to_go_on_fails_where_nothing_is_left_of_its_checkpoint(
    server: WorkerServer, worker: WorkerProcess, offered: bool
) -> None:
    source = Attempts(server, worker, "one_device")
    complete(source, source.start(pause_s=0))
    points = tuple(source.registered()[:2])
    for point in points:
        flip_a_byte(source.store.path(CheckpointKey(point.fence, point.step)))

    member = server.assign(PROGRAM, resume=points if offered else (), resume_from=points[0].checkpoint)

    end = server.wait_drained(member)
    assert end.reason == EndReason.PROGRAM_ERROR
    assert "CheckpointGoneError: run.restore: nothing is left of " in end.message
    assert points[0].checkpoint in end.message
    assert f"drumline rerun {member.claimed.run} --from-start" in end.message
    assert member.of_kind("reduction") == []


def flip_a_byte(checkpoint: Path) -> None:
    file = max((path for path in checkpoint.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))


def test_a_writer_that_was_given_up_touches_nothing_of_a_later_one(server: WorkerServer, worker: WorkerProcess) -> None:
    attempts = Attempts(server, worker, "one_device", every_steps=1)
    zombie = attempts.start(pause_s=0.5)
    server.wait(lambda: len(zombie.of_kind("checkpoint")) >= 2, "the first attempt saved")
    second = attempts.start(pause_s=0.1)
    server.wait(lambda: len(second.of_kind("checkpoint")) >= 1, "the second attempt saved")
    saved = len(zombie.of_kind("checkpoint"))  # it saves on, until what is left of its saves is cleared away under it
    server.wait(lambda: len(zombie.of_kind("checkpoint")) > saved or zombie.end is not None, "the first saves on")
    complete(attempts, second)

    for point in attempts.registered()[:2]:
        key = CheckpointKey(point.fence, point.step)
        assert key.fence == 2
        attempts.store.verify(key, point.manifest)
    server.fence_off(zombie)
    server.wait(lambda: not worker.program_of(zombie), "the first attempt is ended")


def test_asked_to_make_room_a_program_saves_where_it_stands_and_goes_on_from_there(
    server: WorkerServer, worker: WorkerProcess
) -> None:
    attempts = Attempts(server, worker, "one_device", every_steps=1_000)
    member = attempts.start(pause_s=0.5)
    server.wait(lambda: _last_step(member) >= 3, "some steps")
    server.cancel(member)
    server.wait_drained(member)
    (saved,) = member.of_kind("checkpoint")
    assert saved.step == _last_step(member)

    assert first_step(complete(attempts, attempts.start(pause_s=0))) == saved.step + 1


def test_files_of_old_checkpoints_go_once_newer_ones_are_registered(
    server: WorkerServer, worker: WorkerProcess
) -> None:
    attempts = Attempts(server, worker, "one_device", every_steps=2)
    attempts.kill_at(attempts.start(waits_at=10), 8)  # so that the second has steps to save after
    second = attempts.start(pause_s=0.2, waits_at=STEPS - 5)
    server.wait(lambda: len(second.of_kind("checkpoint")) >= 3, "three saves of the second attempt")
    (worker.run_directory(second) / "scratch" / "go").touch()
    complete(attempts, second)  # what is registered is told the program before it saves for the last time
    fences = {key.fence for key in attempts.store.list_committed()}
    registered = [CheckpointKey(point.fence, point.step) for point in attempts.registered()]
    assert fences == {2}
    assert registered[0] in attempts.store.list_committed()
    assert len(attempts.store.list_committed()) < len(registered)
