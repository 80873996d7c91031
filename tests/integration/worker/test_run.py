"""A worker runs programs: what comes back when all goes well."""

import contextlib
import importlib.metadata
import json
from pathlib import Path

import pytest

from drumline import bundle
from drumline.contracts.base import new_id
from drumline.contracts.events import ProgressEvent
from drumline.contracts.reasons import EndReason
from support.processes import wait_until
from support.worker_process import SECRET, WorkerProcess
from support.worker_reports import MemberRecord
from support.worker_server import WorkerServer

TRAINING = """
import jax.numpy as jnp
import drumline.distribute as dist


def main(run, *, steps: int = 3, learning_rate: float = 0.5):
    run.set_total_steps(steps)
    run.describe_examples(tokens=12, flops_per_example=1e6)
    with run.strategy.scope():
        w = dist.Variable(jnp.zeros(()), name="w", aggregation="mean")

    def step(x):
        w.assign_add(dist.all_reduce("mean", x.mean()))
        return x.sum()

    rows = dist.Dataset.from_tensor_slices(jnp.arange(8.0)).batch(8).repeat(steps)
    for number, batch in enumerate(run.strategy.distribute_dataset(rows)):
        total = run.strategy.reduce("sum", run.strategy.run(step, args=(batch,)), axis=None, name="total")
        run.log(step=number, total=total)
        print("step", number)
    return {"w": float(w.value), "learning_rate": learning_rate, "parameters": dict(run.parameters)}
"""


def test_a_result_marks_its_numbers_that_are_none_and_no_text(server: WorkerServer, worker: WorkerProcess) -> None:
    member = server.assign("def main(run):\n    return {'loss': float('nan'), 'note': 'NaN'}\n")
    assert server.wait_drained(member).reason == EndReason.COMPLETED
    (event,) = member.of_kind("result")
    assert (event.value, event.not_finite) == ({"loss": "NaN", "note": "NaN"}, {"loss": "NaN"})


def test_training_on_the_assigned_devices_reports_everything(server: WorkerServer, worker: WorkerProcess) -> None:
    member = server.assign(TRAINING, replicas=4, parameters={"steps": 2}, record={"profile_every": 2})
    end = server.wait_drained(member)
    assert (end.reason, end.exit_code, end.devices_released) == (EndReason.COMPLETED, 0, True), member.log
    assert member.result == {"w": 7.0, "learning_rate": 0.5, "parameters": {"steps": 2, "learning_rate": 0.5}}
    assert member.log == "step 0\nstep 1\n"

    assigned = [(device.device,) for device in member.claimed.devices]
    placement = member.of_kind("placement")[-1]
    assert [replica.devices for replica in placement.replicas] == assigned
    (variable,) = member.of_kind("variable")
    assert set(variable.homes) == {device for (device,) in assigned}

    first = next(event for event in member.of_kind("reduction") if event.name == "total")
    assert [summary.values for summary in first.inputs] == [(1.0,), (5.0,), (9.0,), (13.0,)]
    assert first.result.values == (28.0,)

    logged = {
        (name, step): value
        for event in member.of_kind("metrics")
        for name, step, value in zip(event.names, event.steps, event.values, strict=True)
    }
    assert (logged["total", 0], logged["total", 1]) == (28.0, 28.0)
    for figure in ("sys/steps_per_s", "sys/examples_per_s"):
        # of the second step: under what the program had logged by its end, 0 where that step took a whole window
        (value,) = (value for (name, _), value in logged.items() if name == figure)
        assert value > 0
    progress = member.of_kind("progress")[-1]
    assert (progress.step, progress.total_steps) == (2, 2)
    _expect_throughput(progress)
    _expect_profile(member, [device for (device,) in assigned])
    phases = [event.phase for event in member.of_kind("state")]
    assert phases == ["starting", "loading", "running", "compiling", "running", "finishing"]


def _expect_throughput(progress: ProgressEvent) -> None:
    assert progress.throughput is not None
    told = progress.throughput
    assert told.step_ms is not None
    assert told.dispatch_ms is not None
    assert 0 < told.dispatch_ms <= told.step_ms
    # The peak of a CPU is not known, so that no share of it is told.
    assert (told.chip, told.hfu_percent, told.hfu_unknown, told.mfu_percent) == ("cpu", None, "chip", None)
    assert progress.examples_per_s is not None
    assert told.tokens_per_s == pytest.approx(12 * progress.examples_per_s)
    assert told.mfu_unknown == "chip"


def _expect_profile(member: MemberRecord, devices: list[str]) -> None:
    """The second of two calls, on the run's own devices; the figures of a step are of it."""
    (profile,) = member.of_kind("profile")
    assert (profile.step, profile.call, profile.unmeasured) == (1, 1, None)
    assert sorted(each.device for each in profile.devices) == sorted(devices)
    assert all(each.collective_ns > 0 for each in profile.devices)
    (throughput,) = [event.throughput for event in member.of_kind("progress")[-1:]]
    assert throughput is not None
    assert throughput.sampled is not None
    mean = sum(each.collective_ns for each in profile.devices) / len(devices)
    assert throughput.sampled.collective_ms == pytest.approx(mean / 1e6)


SEVERAL_CALLS = """
import jax.numpy as jnp
import drumline.distribute as dist

def main(run):
    strategy = run.strategy
    run.set_total_steps(30)
    for step in range(30):
        for _ in range(2):
            x = strategy.run(lambda: jnp.float32(step))
            strategy.reduce("mean", x, axis=None, name="loss")
        strategy.reduce("mean", strategy.run(lambda: jnp.float32(step)), axis=None, name="accuracy")
        run.log(step=step, loss=0.5)
    for _ in range(5):
        strategy.reduce("mean", strategy.run(lambda: jnp.float32(29)), axis=None, name="accuracy")
"""


OWN_STRATEGY = """
import jax.numpy as jnp
import drumline.distribute as dist


def main(run):
    strategy = dist.CentralStorageStrategy(run.strategy.devices)
    with strategy.scope():
        w = dist.Variable(jnp.zeros(()), name="w")
    later = dist.OneDeviceStrategy(run.strategy.devices[0])
    with later.scope():
        dist.Variable(jnp.zeros(()), name="unseen")
    for step in range(3):
        total = strategy.reduce("sum", strategy.run(lambda: w + 1.0), axis=None, name="total")
        later.run(lambda: 1.0)
        run.log(step=step, total=float(total))
    return float(total)
"""


def test_a_strategy_that_the_program_makes_itself_is_observed_in_place_of_the_runs(
    server: WorkerServer, worker: WorkerProcess
) -> None:
    """As code that comes from TensorFlow does; one that it uses later is not."""
    member = server.assign(OWN_STRATEGY, replicas=2, record={"reductions_every": 1})
    end = server.wait_drained(member)
    assert (end.reason, member.result) == (EndReason.COMPLETED, 2.0), member.log
    placed = [(event.strategy, len(event.replicas)) for event in member.of_kind("placement")]
    assert list(dict.fromkeys(placed)) == [("MirroredStrategy", 2), ("CentralStorageStrategy", 2)]
    assert [event.name for event in member.of_kind("variable")] == ["w"]
    assert [event.step for event in member.of_kind("reduction") if event.name == "total"] == [0, 1, 2]


def test_reductions_have_the_step_that_the_program_was_in_and_their_call(
    server: WorkerServer, worker: WorkerProcess
) -> None:
    member = server.assign(SEVERAL_CALLS, replicas=2, record={"reductions_every": 1})
    assert server.wait_drained(member).reason == EndReason.COMPLETED, member.log
    told = [event for event in member.of_kind("reduction") if event.origin == "host"]
    assert [(event.step, event.call) for event in told] == [(min(29, call // 3), call) for call in range(95)]
    assert all(event.result.values == (float(event.step),) for event in told)
    assert (member.of_kind("progress")[-1].step, member.of_kind("progress")[-1].total_steps) == (30, 30)


SCANS = """
import time
import jax.numpy as jnp

def main(run):
    for scan in range(40):
        total = run.strategy.reduce("sum", run.strategy.run(lambda: jnp.float32(1)), axis=None, name="total")
        time.sleep(0.02)
        run.log(step=100 * scan + 99, total=total)
"""


def test_the_rate_counts_the_steps_of_the_program_and_is_the_same_in_chart_and_progress(
    server: WorkerServer, worker: WorkerProcess
) -> None:
    member = server.assign(SCANS, replicas=2)
    assert server.wait_drained(member).reason == EndReason.COMPLETED, member.log
    metrics = member.of_kind("metrics")
    logged = [row for event in metrics for row in zip(event.names, event.steps, event.times, event.values, strict=True)]
    times = {step: at for name, step, at, _ in logged if name == "total"}
    charted = [(step, value) for name, step, _, value in logged if name == "sys/steps_per_s"]
    progress = member.of_kind("progress")[-1]
    measured = (3999 - 99) / ((times[3999] - times[99]) / 1_000_000)
    assert progress.steps_per_s == pytest.approx(measured, rel=0.05)
    # Up to where the chart goes: behind its last window the machine may be quicker or slower.
    ends = [99, *(step for step, _ in charted)]
    told_s = sum((end - begin) / rate for begin, end, (_, rate) in zip(ends, ends[1:], charted, strict=False))
    assert told_s == pytest.approx((times[ends[-1]] - times[99]) / 1_000_000, rel=0.05)
    assert {step % 100 for _, step, _, _ in logged} == {99}
    assert {event.step % 100 for event in member.of_kind("reduction")} == {99}


def test_the_key_of_a_member_is_never_in_the_memory_of_its_program(server: WorkerServer, worker: WorkerProcess) -> None:
    member = server.assign("""
import time

def main(run):
    marker = b"".join([b"found", b"-if-", b"searched"])
    run.log(step=1, ready=1.0)
    while marker:
        run.log(step=2, ready=2.0)
        time.sleep(0.01)
""")
    wait_until(lambda: bool(member.of_kind("metrics")), timeout_s=60, what="its first value")
    key = worker.data_dir / "agent" / "keys" / member.id
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.parent.stat().st_mode & 0o777 == 0o700

    (runner,) = worker.program_of(member)
    assert memory_holds(runner.pid, b"found-if-searched")
    assert not memory_holds(runner.pid, key.read_bytes())
    assert not [file for file in worker.run_directory(member).rglob("*.json") if key.read_bytes() in file.read_bytes()]

    server.cancel(member)
    assert server.wait_drained(member).reason == EndReason.CANCELLED
    wait_until(lambda: not key.exists(), timeout_s=20, what="the key to be deleted")


_WINDOW = 2**24
"""Bytes that are read of a process at once."""


def memory_holds(pid: int, wanted: bytes) -> bool:
    """Whether the bytes stand anywhere in what a process can read of its own memory."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights, *_ = line.split()
            first, last = (int(each, 16) for each in span.split("-"))
            if not rights.startswith("r") or "[v" in line:
                continue
            for start in range(first, last, _WINDOW):
                memory.seek(start)
                with contextlib.suppress(OSError):  # never touched, or given back meanwhile
                    if wanted in memory.read(min(_WINDOW + len(wanted), last - start)):
                        return True
    return False


def test_the_program_sees_neither_credentials_nor_the_environment_of_the_worker(
    server: WorkerServer, worker: WorkerProcess
) -> None:
    program = """
import os, socket, struct

def is_own(fd):
    with socket.socket(fileno=os.dup(fd)) as link:
        maker, _, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return maker == os.getpid()

def main(run):
    descriptors = sorted(int(fd) for fd in os.listdir("/proc/self/fd"))
    present = [fd for fd in descriptors if os.path.exists(f"/proc/self/fd/{fd}")]
    sockets = [fd for fd in present if "socket:" in os.readlink(f"/proc/self/fd/{fd}")]
    descriptors = [fd for fd in descriptors if fd not in sockets or not is_own(fd)]
    links = [os.readlink(f"/proc/self/fd/{fd}") for fd in descriptors if os.path.exists(f"/proc/self/fd/{fd}")]
    return {
        "exec": open("/proc/self/environ").read(),
        "now": dict(os.environ),
        "links": links,
        "cwd": os.getcwd(),
        "listing": os.listdir("."),
    }
"""
    member = server.assign(program)
    assert server.wait_drained(member).reason == EndReason.COMPLETED, member.log
    seen = json.dumps(member.result)
    assert SECRET not in seen
    assert "DRUMLINE" not in seen
    assert "drm_" not in seen
    assert member.result["now"]["HOME"] == member.result["cwd"] == str(worker.run_directory(member) / "scratch")
    assert member.result["listing"] == []
    own_stacks = "/memfd:drumline-stacks "  # memory of the runner alone
    harmless = ("pipe:", "/dev/null", "/proc/", own_stacks)
    outside = [link for link in member.result["links"] if not link.startswith(harmless)]
    sockets = [link for link in outside if link.startswith("socket:")]
    files = [link for link in outside if not link.startswith(("socket:", "anon_inode:"))]
    assert (len(sockets), files) == (1, []), outside


def test_several_members_run_at_the_same_time_on_one_host(server: WorkerServer, worker: WorkerProcess) -> None:
    program = """
import time

def main(run, *, me: str):
    print("here is", me)
    while not run.should_stop:
        time.sleep(0.01)
"""
    members = [server.assign(program, parameters={"me": name}) for name in ("a", "b", "c")]
    for member, name in zip(members, "abc", strict=True):
        server.wait_printed(member, f"here is {name}\n")
    for member in members:
        server.cancel(member)
    for member in members:
        server.wait_drained(member)


def test_compiled_programs_are_found_again_by_the_next_run_of_the_version(
    server: WorkerServer, worker: WorkerProcess
) -> None:
    version = new_id("ver")
    server.wait_drained(server.assign(TRAINING, replicas=2, version=version))
    cache = worker.data_dir / "compiled" / importlib.metadata.version("jax") / version
    compiled = {path.name for path in cache.iterdir() if path.name.endswith("-cache")}
    assert compiled
    server.wait_drained(server.assign(TRAINING, replicas=2, version=version))
    assert {path.name for path in cache.iterdir() if path.name.endswith("-cache")} == compiled


SCALING = """
import jax

@jax.jit
def scale(x):
    return x * {factor}

def main(run):
    return float(scale(1.0))
"""


def test_a_compiled_program_that_somebody_exchanged_is_compiled_again(
    server: WorkerServer, worker: WorkerProcess
) -> None:
    """Programs of one host run as one user, so each can write what another will run."""
    caches = worker.data_dir / "compiled" / importlib.metadata.version("jax")
    doubling, tripling = new_id("ver"), new_id("ver")
    runs = [(doubling, SCALING.format(factor=2)), (tripling, SCALING.format(factor=3))]
    first = [server.assign(source, version=version) for version, source in runs]
    for member in first:
        server.wait_drained(member)
    (genuine,), (foreign,) = (list((caches / version).glob("jit_scale-*-cache")) for version in (doubling, tripling))
    genuine.write_bytes(foreign.read_bytes())
    planted = caches / doubling / "jit_planted-cache"
    planted.write_bytes(foreign.read_bytes())

    again = server.assign(SCALING.format(factor=2), version=doubling)
    server.wait_drained(again)

    assert [member.result for member in (*first, again)] == [2.0, 3.0, 2.0]
    assert not planted.exists()
    assert "is not known to be as it was compiled here" in worker.said


def test_a_cached_bundle_that_somebody_exchanged_is_fetched_again(server: WorkerServer, worker: WorkerProcess) -> None:
    """A file was trusted by its name: what a job wrote there ran in other people's runs."""
    first = server.assign("def main(run):\n    return 'genuine'\n")
    server.wait_drained(first)
    (cached,) = (worker.data_dir / "bundles").glob(f"{first.claimed.bundle.removeprefix('sha256:')}.zip")
    cached.write_bytes(bundle.pack_source("job.py", b"def main(run):\n    return 'forged'\n"))

    again = server.assign("def main(run):\n    return 'genuine'\n")
    server.wait_drained(again)

    assert [first.result, again.result] == ["genuine", "genuine"]
    assert bundle.digest(cached) == first.claimed.bundle


def test_a_run_leaves_no_directory_behind_once_everything_is_acknowledged(
    server: WorkerServer, worker: WorkerProcess
) -> None:
    member = server.assign("def main(run):\n    return 1\n")
    server.wait_drained(member)
    server.wait(lambda: not worker.run_directory(member).exists(), "the run directory is gone")


def test_device_arrays_can_be_logged_and_checkpoints_are_committed(server: WorkerServer, worker: WorkerProcess) -> None:
    program = """
import jax.numpy as jnp

def main(run):
    before = run.restore()
    run.log(step=3, loss=jnp.float32(1.5), bad=float("nan"))
    run.checkpoint({"w": jnp.arange(4.0)}, step=3)
    return {"before": before, "after": run.restore()["w"].tolist()}
"""
    member = server.assign(program)
    assert server.wait_drained(member).reason == EndReason.COMPLETED, member.log
    assert member.result == {"before": None, "after": [0.0, 1.0, 2.0, 3.0]}
    (metrics,) = member.of_kind("metrics")
    assert metrics.names == ("loss", "bad")
    assert metrics.values[0] == 1.5
    assert metrics.values[1] != metrics.values[1]
    (checkpoint,) = member.of_kind("checkpoint")
    assert checkpoint.step == 3
    assert checkpoint.size_bytes > 0
