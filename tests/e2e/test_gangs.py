"""One run over two hosts, with real processes: they meet, compute together, and end together (F23, F24)."""

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from drumline import Client, Run
from drumline.contracts.spec import Limits, MirroredSpec, Retries
from e2e.pages import open_settled, signed_in
from e2e.seen import TIMEOUT_MS, connect
from support.deployment import DRUMLINE, QUICKER, Deployment
from support.hosts import ExtraHost
from support.processes import living, wait_until
from support.programs import Programs

GANG = MirroredSpec()
STOPPED_S = 15.0
END_S = 120.0

TOGETHER = """
    import jax
    import jax.numpy as jnp
    from jax.experimental import multihost_utils


    def main(run):
        \"\"\"Sums over all processes with JAX's own collectives.\"\"\"
        multihost_utils.sync_global_devices("begin")
        ranks = multihost_utils.process_allgather(jnp.int32(jax.process_index()))
        run.log(step=0, ranks=float(ranks.sum()))
        devices = [device.process_index for device in run.strategy.devices]
        return {"ranks": ranks.tolist(), "devices": devices, "own": len(jax.local_devices())}
"""
STRATEGY = """
    import jax.numpy as jnp

    import drumline.distribute as dist


    def main(run):
        \"\"\"Trains with the strategy, which spans two processes.\"\"\"
        with run.strategy.scope():
            weight = dist.Variable(jnp.zeros(()), aggregation="mean")

        def step(rows):
            weight.assign_add(dist.all_reduce("sum", rows.sum()))
            return rows.sum()

        for rows in run.strategy.distribute_dataset(dist.Dataset.range(16).batch(8)):
            total = run.strategy.reduce("sum", run.strategy.run(step, args=(rows,)), axis=None, name="total")
            run.log(step=run.strategy.step, total=float(total))
        return {"weight": float(weight.value), "own": len(run.strategy.local_results(rows))}
"""
LATE = """
    import time
    from pathlib import Path

    import jax
    import jax.numpy as jnp

    import drumline.distribute as dist


    def main(run, *, until: str):
        \"\"\"Steps until a file is there; the second process comes late to each.\"\"\"
        strategy = run.strategy

        def step(over):
            return dist.all_reduce("sum", over)

        for number in range(10_000):
            if jax.process_index() == 1:
                time.sleep(0.06)
            is_over = float(Path(until).exists() and jax.process_index() == 0)
            over = strategy.distribute_values_from_function(lambda _: jnp.float32(is_over))
            run.log(step=number)
            if float(strategy.local_results(strategy.run(step, args=(over,)))[0]):
                return
"""
SAVING = """
    import jax.numpy as jnp


    def main(run):
        \"\"\"Starts over, for there is no checkpoint, and tries to save one.\"\"\"
        run.checkpoint(run.restore({"x": jnp.zeros(3)}), step=run.next_step)
"""
KEEPING = """
    from pathlib import Path

    import jax
    from jax.experimental import multihost_utils


    def main(run):
        \"\"\"Each process keeps a file of its own, and the same one as the other.\"\"\"
        Path("part.txt").write_text(f"of process {jax.process_index()}\\n" * 1000)
        Path("whole.txt").write_text("the same everywhere\\n" * 1000)
        for name in ("part.txt", "whole.txt"):
            run.save_artifact(name)
        multihost_utils.sync_global_devices("end")
"""
IN_STEP = """
    import time

    import jax
    import jax.numpy as jnp
    from jax.experimental import multihost_utils


    def main(run, *, sleeper: int = -1):
        \"\"\"Meets at every step; one process may stay away from the fourth on.\"\"\"
        for step in range(100_000):
            if step == 3 and jax.process_index() == sleeper:
                time.sleep(600)
            multihost_utils.process_allgather(jnp.int32(step))
            run.log(step=step, x=1.0)
            time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Deployment, list[ExtraHost]]]:
    """A server and two hosts with two devices each."""
    deployment = Deployment.start(tmp_path_factory.mktemp("gang") / "data", "--no-worker", environment=QUICKER)
    started: list[ExtraHost] = []
    try:
        deployment.wait_for_api()
        for name in ("alpha", "beta"):
            started.append(ExtraHost(deployment.data_dir.parent / name, deployment.url, cpu_devices=2))
            with deployment.http() as http:
                started[-1].enrol(http)
            started[-1].start()
        deployment.wait_for_devices(4)
        yield deployment, started
    finally:
        for host in started:
            host.stop()
        deployment.stop()


@pytest.fixture
def client(hosts: tuple[Deployment, list[ExtraHost]]) -> Iterator[Client]:
    """The SDK; whatever a test left running is stopped."""
    with connect(hosts[0]) as client:
        yield client
        for summary in list(client.list(states=["QUEUED", "PLACED", "RUNNING", "RETRY_WAIT", "CANCELLING"])):
            client.get(summary.id).cancel(grace_s=0).wait(timeout=END_S)


def test_processes_of_two_hosts_compute_together(client: Client, programs: Programs) -> None:
    run = client.submit(programs.write("together", TOGETHER), replicas=4, strategy=GANG).wait(timeout=END_S)

    assert run.state == "SUCCEEDED", f"{run.reason}\n{output(run)}"
    assert run.result == {"ranks": [0, 1], "devices": [0, 0, 1, 1], "own": 2}
    assert set(run.details.hosts) == {"alpha", "beta"}


def test_one_strategy_computes_over_two_hosts(
    client: Client, programs: Programs, hosts: tuple[Deployment, list[ExtraHost]], browser: Browser
) -> None:
    run = client.submit(programs.write("strategy", STRATEGY), replicas=4, strategy=GANG).wait(timeout=END_S)

    assert run.state == "SUCCEEDED", f"{run.reason}\n{output(run)}"
    assert run.result == {"weight": 120.0, "own": 2}
    (total,) = run.reductions("total").all_at(run.reductions("total").names()[0].steps[0])
    assert [one.values for one in total.inputs] == [(1.0,), (5.0,), (9.0,), (13.0,)]
    assert total.output.values == (28.0,)
    (program,) = run.placement.exchanges.programs
    crossing = [(one.kind, one.op, one.bytes_per_step) for one in program.exchanges if one.crosses_hosts]
    assert (program.name.rpartition(".")[2], program.executor) == ("step", "spmd")
    assert crossing == [("all_reduce", "sum", 4)], program  # the mean of what is equal on all costs none
    with signed_in(browser, hosts[0]) as page:
        open_settled(page, f"{run.url}/placement")
        shown = page.get_by_test_id("exchanges")
        expect(shown).to_contain_text(re.compile(r"all-reduce, sum\s*hosts\s*1\s*1\s*4 B"), timeout=TIMEOUT_MS)
        expect(page.get_by_text("lines between hosts: all-reduce, 4 B a step")).to_be_visible()


def test_each_host_sends_what_its_member_keeps(client: Client, programs: Programs, tmp_path: Path) -> None:
    run = client.submit(programs.write("keeping", KEEPING), replicas=4, strategy=GANG).wait(timeout=END_S)
    assert run.state == "SUCCEEDED", f"{run.reason}\n{output(run)}"
    wait_until(
        lambda: [each.is_stored for each in run.artifacts()] == [True] * 4, timeout_s=END_S, what="all artifacts come"
    )
    parts, whole = ([each for each in run.artifacts() if each.name == name] for name in ("part.txt", "whole.txt"))
    assert sorted(each.details.host_name for each in parts) == ["alpha", "beta"]
    saved = {each.details.rank: each.save(tmp_path / str(each.details.rank)).read_text() for each in parts}
    assert saved == {rank: f"of process {rank}\n" * 1000 for rank in (0, 1)}
    assert len({each.details.sha256 for each in whole}) == 1
    assert [each.save(tmp_path / f"whole-{at}").read_text() for at, each in enumerate(whole)] == [
        "the same everywhere\n" * 1000
    ] * 2


def test_the_member_that_the_others_wait_for_is_named_while_the_run_is_live(
    hosts: tuple[Deployment, list[ExtraHost]], client: Client, programs: Programs, browser: Browser, tmp_path: Path
) -> None:
    until = tmp_path / "over"
    run = client.submit(programs.write("late", LATE), replicas=4, strategy=GANG, parameters={"until": str(until)})
    wait_until(lambda: run.refresh().progress.straggler is not None, timeout_s=END_S, what="a straggler is named")
    live = run.arrivals()
    command, environment = [str(DRUMLINE), "arrivals", run.id], hosts[0].environment
    told = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    with signed_in(browser, hosts[0]) as page:
        open_settled(page, f"{run.url}/placement")
        shown = page.get_by_test_id("arrival").filter(has_text="straggler: comes last")
        expect(shown).to_contain_text("rank 1", timeout=TIMEOUT_MS)
        expect(page.get_by_test_id("straggler")).to_contain_text("(rank 1) comes last", timeout=TIMEOUT_MS)
        used = page.get_by_test_id("usage").get_by_role("row").filter(has_text=re.compile(r"\d of \d+"))
        expect(used).to_have_count(2, timeout=TIMEOUT_MS)
        page.get_by_role("slider", name="Steps").press("Home")
        expect(page.get_by_text(re.compile(r"up to call \d"))).to_be_visible(timeout=TIMEOUT_MS)
    until.touch()

    assert run.wait(timeout=END_S).state == "SUCCEEDED", output(run)
    assert run.progress.straggler is not None
    late_host = run.details.hosts[1]
    assert (run.progress.straggler.rank, run.progress.straggler.host_name) == (1, late_host)
    (punctual, late) = [member.median for member in live.members]
    assert punctual is not None
    assert late is not None
    assert late.own_code_ms > 30 > late.wait_ms
    assert punctual.wait_ms > 30
    assert f"rank 1 on {late_host} came last in" in told.stdout, told.stderr


def test_a_checkpoint_over_two_hosts_without_one_store_says_what_to_do_instead(
    client: Client, programs: Programs
) -> None:
    said = ("UnsupportedError: run.checkpoint at step 0", "--checkpoint-dir on one volume", "--spread one_host")
    run = client.submit(programs.write("unsupported", SAVING), replicas=4, strategy=GANG).wait(timeout=END_S)

    assert (run.state, run.reason and run.reason.code) == ("FAILED", "PROGRAM_ERROR"), output(run)
    assert run.reason is not None
    assert all(words in run.reason.message for words in said), run.reason.message


def test_a_lost_member_stops_the_gang_and_all_of_it_is_tried_again(
    client: Client, programs: Programs, hosts: tuple[Deployment, list[ExtraHost]]
) -> None:
    run = client.submit(
        programs.write("in_step", IN_STEP), replicas=4, strategy=GANG, retries=Retries(infrastructure=1)
    )
    wait_until(lambda: (run.refresh().details.progress.step or 0) >= 3, timeout_s=END_S, what="it steps")
    runners = [runner for host in hosts[1] for runner in host.runners()]
    assert len(runners) == 2
    runners[1].send_signal(signal.SIGKILL)
    began = time.monotonic()
    wait_until(lambda: not living(runners), timeout_s=STOPPED_S, what="all members are stopped")

    assert time.monotonic() - began < STOPPED_S
    wait_until(lambda: len(list(run.attempts)) == 2, timeout_s=END_S, what="another attempt")
    second, first = run.attempts
    assert first.reason is not None
    assert first.reason.code == "KILLED", [(member.rank, member.reason) for member in first.members]
    assert len(second.members) == len(first.members) == 2
    wait_until(lambda: run.refresh().state == "RUNNING", timeout_s=END_S, what="it runs again")


def test_a_member_that_stays_away_is_named_and_all_show_their_stacks(
    client: Client, programs: Programs, hosts: tuple[Deployment, list[ExtraHost]]
) -> None:
    program = programs.write("in_step", IN_STEP)
    run = client.submit(
        program,
        replicas=4,
        strategy=GANG,
        parameters={"sleeper": 1},
        limits=Limits(step_s=5),
        retries=Retries(infrastructure=0),
    ).wait(timeout=END_S)

    assert (run.state, run.reason and run.reason.code) == ("FAILED", "HANG"), output(run)
    assert run.reason is not None
    assert run.reason.message.startswith("Has not arrived: rank 1 on "), run.reason.message
    stacks = {member.rank: text for member, text in run.stacks()}
    assert "multihost_utils.py" in stacks[0]
    assert 'in_step.py", line 12 in main' in stacks[1]
    command, environment = [str(DRUMLINE), "watch", run.id], hosts[0].environment
    told = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert told.returncode == 1
    assert "Has not arrived: rank 1 on " in told.stderr
    assert 'in_step.py", line 12 in main' in told.stderr


def test_all_members_tell_where_they_stand_in_one_view_and_a_frozen_host_is_said_to_be_silent(
    client: Client, programs: Programs, hosts: tuple[Deployment, list[ExtraHost]]
) -> None:
    program = programs.write("in_step", IN_STEP)
    run = client.submit(program, replicas=4, strategy=GANG, parameters={"sleeper": 1})
    wait_until(lambda: (run.refresh().details.progress.step or 0) >= 3, timeout_s=END_S, what="it steps")
    asked_at = time.monotonic()
    told = run.ask_stacks()

    assert time.monotonic() - asked_at < 2
    assert told.is_complete
    assert [member.rank for member in told.members] == [0, 1]
    stands = [member.standing.python for member in told.members if member.standing is not None]
    assert "multihost_utils.py" in stands[0]
    assert 'in_step.py", line 12 in main' in stands[1]
    beta = hosts[1][1]
    beta.freeze()
    try:
        told = run.ask_stacks(timeout=2)
    finally:
        beta.thaw()
    by_host = {member.host_name: member for member in told.members}
    assert not told.is_complete
    assert by_host["alpha"].standing is not None
    assert by_host["beta"].missing.startswith("Its host has not answered yet; it was last heard of "), by_host["beta"]


def output(run: Run) -> str:
    """What the program printed."""
    return "".join(segment.text for segment in run.logs())
