"""Two workers that take themselves for the same host: the newer stays, the older ends with all that it runs (F38)."""

import subprocess
import time
from pathlib import Path

import pytest

from chaos.conftest import Measure
from chaos.harness import PATIENCE_S, TAKEOVER_S, Site, seconds_until
from chaos.programs import Witness
from drumline import Run
from drumline.contracts.spec import Retries
from support.hosts import ExtraHost
from support.processes import living, wait_until

NOTICED_S = 6.0
"""A heartbeat every 5 s tells it, and its programs are killed at once."""


HOW = ["a copy of its data directory", "its name enrolled again"]


def twin_of(site: Site, host: ExtraHost, how: str) -> ExtraHost:
    """A second worker of the same name, with a data directory of its own."""
    elsewhere = site.directory / "elsewhere"
    elsewhere.mkdir()
    twin = ExtraHost(elsewhere / host.name, site.server.url, host.cpu_devices, host.options)
    if how == "a copy of its data directory":
        # also of the member that runs; what vanishes meanwhile is left out
        subprocess.run(["cp", "-a", host.data_dir, twin.data_dir], check=False, stderr=subprocess.DEVNULL)
    else:
        twin.enrol(site.http())
    site.hosts.append(twin)
    return twin


@pytest.mark.parametrize("how", HOW)
def test_f38_of_two_workers_of_one_host_the_older_ends_with_all_it_runs(
    site: Site, stepping: Path, witness: Witness, measured: Measure, how: str
) -> None:
    """One whose token still holds proves the end; a new enrolment ends the older token, so T has to pass."""
    alpha = site.add_host("alpha")
    run = site.submit(stepping, replicas=2, parameters=witness.parameters, retries=Retries(infrastructure=1))
    wait_until(lambda: bool(witness.executions()), timeout_s=PATIENCE_S, what="it runs")
    program = alpha.runners()
    twin = twin_of(site, alpha, how)
    twin.start()
    wait_until(lambda: "registered as" in twin.said, timeout_s=PATIENCE_S, what="the twin is registered")
    registered, registered_at = time.monotonic(), time.time()

    measured(
        "the older one's program is dead", seconds_until(lambda: not living(program), "dead", registered), NOTICED_S
    )
    state, limit_s = ("PREEMPTED", NOTICED_S) if how == HOW[0] else ("LOST", TAKEOVER_S + 2)
    measured("its run is given up", site.lost_after_s(run, registered_at, state), site.within(limit_s))
    assert alpha.wait(PATIENCE_S) == 1
    assert "what ran here was ended" in alpha.said
    assert "Traceback" not in alpha.said
    finish_on(twin, site, run, witness)


@pytest.mark.parametrize(
    "how", [HOW[0], pytest.param(HOW[1], marks=pytest.mark.long("it ends above, both ways, where it is not cut off"))]
)
def test_f38_of_two_workers_of_one_host_the_older_is_cut_off_and_its_program_ends_before_another_begins(
    site: Site, stepping: Path, witness: Witness, measured: Measure, how: str
) -> None:
    line = site.proxy()
    alpha = site.add_host("alpha", through=line)
    run = site.submit(stepping, replicas=2, parameters=witness.parameters, retries=Retries(infrastructure=1))
    wait_until(lambda: bool(witness.executions()), timeout_s=PATIENCE_S, what="it runs")
    twin = twin_of(site, alpha, how)
    line.hold()
    held_at = time.time()
    twin.start()
    wait_until(lambda: "registered as" in twin.said, timeout_s=PATIENCE_S, what="the twin is registered")
    why = run.refresh().details.why
    assert why is not None
    assert why.rule == "host_moved"

    measured("taken over", site.lost_after_s(run, held_at), site.within(TAKEOVER_S + 2))
    wait_until(lambda: len(witness.executions()) == 2, timeout_s=PATIENCE_S, what="it continues at the twin")
    assert witness.overlap_s() < 0
    line.mend()
    assert alpha.wait(PATIENCE_S) == 1
    assert "what ran here was ended" in alpha.said
    finish_on(twin, site, run, witness)


def finish_on(twin: ExtraHost, site: Site, run: Run, witness: Witness) -> None:
    """The second attempt ends well, and nothing of the first was alive beside it."""
    wait_until(lambda: len(witness.executions()) == 2, timeout_s=PATIENCE_S, what="it continues at the twin")
    witness.enough.touch()
    assert site.finish(run).state == "SUCCEEDED", run.reason
    assert run.details.attempts == len(witness.executions()) == 2
    assert witness.overlap_s() < 0
    assert twin.said.count("registered as") == 1, "nobody took its place"
