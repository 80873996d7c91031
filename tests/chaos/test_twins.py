"""Two workers that take themselves for the same host: the newer stays, the older ends with all that it runs (F38)."""

import shutil
import time
from pathlib import Path

import pytest

from chaos.conftest import Measure
from chaos.harness import PATIENCE_S, Site, seconds_until
from chaos.programs import Witness
from drumline.contracts.spec import Retries
from support.hosts import ExtraHost
from support.processes import living, wait_until

NOTICED_S = 6.0
"""A heartbeat every 5 s tells it, and its programs are killed at once."""


def twin_of(site: Site, host: ExtraHost, how: str) -> ExtraHost:
    """A second worker of the same name, with a data directory of its own."""
    elsewhere = site.directory / "elsewhere"
    elsewhere.mkdir()
    twin = ExtraHost(elsewhere / host.name, host.server, host.cpu_devices, host.options)
    if how == "a copy of its data directory":
        twin.data_dir.mkdir(mode=0o700)
        for name in ("worker.json", "enrolment-token"):
            shutil.copy2(host.data_dir / name, twin.data_dir / name)
    else:
        twin.enrol(site.http())
    site.hosts.append(twin)
    return twin


@pytest.mark.parametrize("how", ["a copy of its data directory", "its name enrolled again"])
def test_f38_of_two_workers_of_one_host_the_older_ends_with_all_it_runs(
    site: Site, stepping: Path, witness: Witness, measured: Measure, how: str
) -> None:
    alpha = site.add_host("alpha")
    run = site.submit(
        stepping, replicas=2, parameters={"witness": str(witness.path), "steps": 120}, retries=Retries(infrastructure=1)
    )
    wait_until(lambda: bool(witness.executions()), timeout_s=PATIENCE_S, what="it runs")
    program = alpha.runners()
    twin = twin_of(site, alpha, how)
    twin.start()
    wait_until(lambda: "registered as" in twin.said, timeout_s=PATIENCE_S, what="the twin is registered")
    registered = time.monotonic()

    measured(
        "the older one's program is dead", seconds_until(lambda: not living(program), "dead", registered), NOTICED_S
    )
    assert alpha.wait(PATIENCE_S) == 1
    assert "what ran here was ended" in alpha.said
    assert "Traceback" not in alpha.said
    assert site.finish(run).state == "SUCCEEDED"
    assert run.details.attempts == len(witness.executions()) == 2
    assert witness.overlap_s() < 0
    assert twin.said.count("registered as") == 1, "nobody took its place"
