"""Gangs over two hosts: one member is lost, one stays away, one never claims (F23, F24, F25)."""

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from chaos.conftest import Measure
from chaos.harness import PATIENCE_S, Site, in_force, open_site, seconds_until
from chaos.programs import write_program
from drumline import Run
from drumline.contracts.spec import CheckpointSpec, Limits, MirroredSpec, Retries
from support.hosts import ExtraHost
from support.processes import living, wait_until

pytestmark = pytest.mark.xdist_group("gangs")
"""Faults of programs: the hosts that they meet stay the same."""

GANG = MirroredSpec()
STEP_S, FIRST_STEP_S = 5.0, 15.0
NOTICED_S = 5.0 + 5.0
"""A gang's watchdog waits for a heartbeat of each host, and for the stacks of all."""
STOPPED_S = 15.0
CLAIM_S = 8.0
LOCKSTEP = '''
    import os
    import threading
    import time

    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental import multihost_utils


    def main(run, *, steps: int = 4000, enough: str = "", hang: str = "", path: str = "", saves: bool = False):
        """Meets at every step, until one member finds the file `enough`; rank 1 may hang at step 3, or never start with
        the first, and says so in a file."""
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
        over_all = jax.sharding.NamedSharding(mesh, jax.P("d"))
        seen = jax.make_array_from_callback((4,), over_all, lambda index: np.zeros(4, np.int32)[index])
        state = {"value": 1, "rank": jax.process_index(), "seen": seen}
        if saves:
            state = run.restore(state)
        assert state["rank"] == jax.process_index()
        value, seen = state["value"], state["seen"]
        for step in range(run.next_step, steps):
            if hang and step == (0 if hang == "never starts" else 3) and jax.process_index() == 1:
                open(path, "w").close()
                if hang == "lock":
                    lock = threading.Lock()
                    lock.acquire()
                    lock.acquire()
                time.sleep(600)
            own = jnp.int32([step + jax.process_index(), os.path.exists(enough)])
            ranks, over = multihost_utils.process_allgather(own).sum(axis=0).tolist()
            value = (value * 31 + ranks) % 1_000_003
            seen = jax.jit(lambda x: x + x.sum() % 7 + jnp.arange(4))(seen)
            run.log(step=step, value=float(value))
            if saves:
                run.checkpoint({"value": value, "rank": jax.process_index(), "seen": seen}, step=step)
            if over:
                break
            time.sleep(0.1)
        all_seen = multihost_utils.process_allgather(seen, tiled=True).tolist()
        return {"steps": step + 1, "value": value, "seen": all_seen}
'''


def undisturbed(steps: int) -> dict[str, Any]:
    """What a gang left alone returns. Any: numbers."""
    value, seen = 1, [0, 0, 0, 0]
    for step in range(steps):
        value = (value * 31 + 2 * step + 1) % 1_000_003
        total = sum(seen) % 7
        seen = [each + total + device for device, each in enumerate(seen)]
    return {"steps": steps, "value": value, "seen": seen}


@pytest.fixture(scope="module")
def two_hosts(shared_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two hosts with two devices each; an attempt must be claimed within 8 s."""
    with open_site(tmp_path_factory.mktemp("gangs"), shared_url, in_force("CLAIM_S", CLAIM_S)) as site:
        for name in ("alpha", "beta"):
            site.add_host(name, cpu_devices=2)
        yield site


@pytest.fixture
def gang_site(two_hosts: Site) -> Iterator[Site]:
    """They outlive each of these faults."""
    yield two_hosts
    two_hosts.tidy()


def at_step(run: Run, step: int) -> None:
    wait_until(lambda: (run.refresh().details.progress.step or 0) >= step, timeout_s=PATIENCE_S, what=f"step {step}")


def test_f24_a_lost_member_stops_its_gang_which_goes_on_at_its_size_from_its_checkpoint(
    gang_site: Site, tmp_path: Path, measured: Measure
) -> None:
    enough = tmp_path / "enough"
    run = gang_site.submit(
        write_program(tmp_path, LOCKSTEP),
        replicas=4,
        strategy=GANG,
        retries=Retries(infrastructure=1),
        checkpoint=CheckpointSpec(every_steps=3),
        parameters={"enough": str(enough), "saves": True},
    )
    at_step(run, 8)
    wait_until(lambda: [*run.checkpoints()] != [], timeout_s=PATIENCE_S, what="a checkpoint is registered")
    runners = [runner for host in gang_site.hosts for runner in host.runners()]
    assert len(runners) == 2
    runners[1].send_signal(signal.SIGKILL)
    measured("all members are stopped", seconds_until(lambda: not living(runners), "stopped"), STOPPED_S)
    enough.touch()

    assert gang_site.finish(run).state == "SUCCEEDED"
    second, first = run.attempts
    assert len(first.members) == len(second.members) == 2
    assert (second.resumed_step or 0) >= 2, "it resumes from what all members had saved"
    assert isinstance(run.result, dict)
    assert run.result == undisturbed(int(str(run.result["steps"])))


@pytest.mark.parametrize(
    "hang", ["lock", pytest.param("sleep", marks=pytest.mark.long("as `lock` does")), "stopped", "never starts"]
)
def test_f23_a_gang_that_hangs_ends_naming_the_member_that_stays_away(
    gang_site: Site, tmp_path: Path, measured: Measure, hang: str
) -> None:
    hangs = tmp_path / "hangs"
    limits = Limits(first_step_s=FIRST_STEP_S) if hang == "never starts" else Limits(step_s=STEP_S)
    run = gang_site.submit(
        write_program(tmp_path, LOCKSTEP),
        replicas=4,
        strategy=GANG,
        parameters={"hang": "" if hang == "stopped" else hang, "path": str(hangs)},
        limits=limits,
        retries=Retries(infrastructure=0),
    )
    if hang == "stopped":
        at_step(run, 2)
        os.kill(runner_of_rank_1(gang_site, run).pid, signal.SIGSTOP)
        hangs.touch()
    wait_until(hangs.exists, timeout_s=PATIENCE_S, what="rank 1 hangs")
    name = host_of_rank_1(gang_site, run)
    wait_until(lambda: run.refresh().state == "FAILED", timeout_s=PATIENCE_S, what="the hang is found")
    limit_s = limits.first_step_s or STEP_S
    measured(f"found: {hang}", time.time() - hangs.stat().st_mtime, limit_s + NOTICED_S)

    assert gang_site.finish(run).reason is not None
    assert run.reason is not None
    assert run.reason.code == "HANG"
    assert run.reason.message.startswith(f"Has not arrived: rank 1 on {name} "), run.reason.message
    assert "main" in {member.rank: text for member, text in run.stacks()}[1]


def host_of_rank_1(site: Site, run: Run) -> str:
    """Its name."""
    late = next(member.host for member in next(iter(run.attempts)).members if member.rank == 1)
    return next(host.name for host in site.fleet() if host.id == late)


def runner_of_rank_1(site: Site, run: Run) -> psutil.Process:
    """The process of its program."""
    name = host_of_rank_1(site, run)
    (runner,) = next(host for host in site.hosts if host.name == name).runners()
    return runner


def place_on_frozen(site: Site, paused: ExtraHost, program: Path) -> list[Run]:
    """Two gangs, of which one was placed on the frozen host before that was suspect, which takes seconds.

    Where the machine is too busy to submit in that time, nothing is placed, and it is tried again.
    """

    for _ in range(5):
        paused.freeze()
        runs = [site.submit(program, replicas=4, strategy=GANG, parameters={"steps": 5}) for _ in range(2)]
        wait_until(
            partial(_is_decided, site, paused, runs), timeout_s=PATIENCE_S, what="a gang is placed, or its host suspect"
        )
        if _is_placed(runs):
            return runs
        paused.thaw()
        for run in runs:
            assert site.finish(run).state == "SUCCEEDED"
    raise AssertionError("no gang was placed in the time in which a frozen host counts as live")


def _is_placed(runs: list[Run]) -> bool:
    return any([*run.attempts] for run in runs)


def _is_decided(site: Site, paused: ExtraHost, runs: list[Run]) -> bool:
    return _is_placed(runs) or site.host_state(paused.name) != "live"


def test_f25_gangs_that_one_host_does_not_claim_expire_block_nobody_and_run_when_it_is_back(
    gang_site: Site, tmp_path: Path, measured: Measure
) -> None:
    paused = gang_site.hosts[1]
    program = write_program(tmp_path, LOCKSTEP)
    runs = place_on_frozen(gang_site, paused, program)

    def expired() -> bool:
        return any(attempt.state == "EXPIRED" for run in runs for attempt in run.attempts)

    measured("expired", seconds_until(expired, "an attempt expires"), CLAIM_S + 4)
    alone = gang_site.submit(program, replicas=2, parameters={"steps": 5})
    assert gang_site.finish(alone).state == "SUCCEEDED", "nobody holds the devices of the host that lives"
    paused.thaw()

    for run in runs:
        assert gang_site.finish(run).state == "SUCCEEDED"
        assert run.details.attempts == 1, "what expires counts for nothing"
