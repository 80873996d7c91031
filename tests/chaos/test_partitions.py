"""The line between a host and the server fails: for a while, for too long, one way or both (F05, F06)."""

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from chaos.conftest import Measure
from chaos.harness import PATIENCE_S, SUSPECT_S, TAKEOVER_S, TIME_SCALE, Site, open_site, seconds_until
from chaos.programs import Witness
from chaos.test_hosts import LOOK_S, run_some_steps
from drumline.contracts import heartbeats
from support.processes import wait_until
from support.proxy import Direction, Proxy

OUTAGE_S = 12.0
"""With the heartbeat before it, and the one that is lost after it, still shorter than what is left until TERM."""
UNANSWERED_S = TIME_SCALE * (heartbeats.HEARTBEAT_ANSWER_S + heartbeats.HEARTBEAT_AGAIN_S)
"""Between two requests that arrive and are not answered. The host is heard all the while, so its lease does not run
out: its member is given up when the worker, which has ended it in time, says so; two requests are enough for that."""
WAYS = {"both": (Direction.TO_SERVER, Direction.TO_CLIENT), "answers": (Direction.TO_CLIENT,)}


pytestmark = pytest.mark.xdist_group("partitions")


@dataclass(frozen=True, slots=True)
class Lines:
    """Two hosts, each with a line to the server that can fail."""

    site: Site
    of: Mapping[str, Proxy]


@pytest.fixture(scope="module")
def two_lines(shared_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lines]:
    """The hosts `alpha` and `beta`."""
    with open_site(tmp_path_factory.mktemp("partitions"), shared_url) as site:
        lines = {name: site.proxy() for name in ("alpha", "beta")}
        for name, line in lines.items():
            site.add_host(name, through=line)
        yield Lines(site, lines)


@pytest.fixture
def lines(two_lines: Lines) -> Iterator[Lines]:
    """They outlive each of these faults."""
    yield two_lines
    for line in two_lines.of.values():
        line.mend()
    two_lines.site.tidy()


def test_f05_a_partition_shorter_than_the_lease_is_shown_and_nothing_else(
    lines: Lines, stepping: Path, witness: Witness, chance: random.Random, measured: Measure
) -> None:
    site = lines.site
    run = site.submit(stepping, replicas=2, parameters=witness.parameters)
    run_some_steps(witness, chance)
    (host,) = run.refresh().details.hosts
    line = lines.of[host]
    line.hold()
    held = time.monotonic()
    suspect_s = seconds_until(lambda: site.host_state(host) == "suspect", "it is suspect", held)
    wait_until(lambda: time.monotonic() - held >= OUTAGE_S, timeout_s=PATIENCE_S, what="the line was held")
    line.mend()
    wait_until(lambda: site.host_state(host) == "live", timeout_s=PATIENCE_S, what="it is live again")
    witness.enough.touch()

    assert site.finish(run).state == "SUCCEEDED", run.reason
    assert len(witness.executions()) == run.details.attempts == 1
    (execution,) = witness.executions()
    printed = "".join(segment.text for segment in run.logs()).split("\n")
    assert [line for line in printed if line.startswith("step ")] == [f"step {step}" for step in execution.steps]
    measured("suspect", suspect_s, site.within(SUSPECT_S + LOOK_S))


@pytest.mark.parametrize("ways", WAYS.values(), ids=WAYS)
def test_f06_a_partition_longer_than_the_lease_ends_the_program_before_another_begins(
    *,
    ways: Sequence[Direction],
    lines: Lines,
    stepping: Path,
    witness: Witness,
    chance: random.Random,
    measured: Measure,
) -> None:
    site = lines.site
    run = site.submit(stepping, replicas=2, parameters=witness.parameters)
    run_some_steps(witness, chance)
    (cut_off,) = run.refresh().details.hosts
    lines.of[cut_off].hold(*ways)
    taken_s = site.lost_after_s(run, time.time())
    wait_until(lambda: len(witness.executions()) == 2, timeout_s=PATIENCE_S, what="it resumes elsewhere")
    lines.of[cut_off].mend()
    wait_until(lambda: site.free_devices(cut_off) == 2, timeout_s=PATIENCE_S, what="its devices are free")
    witness.enough.touch()

    assert site.finish(run).state == "SUCCEEDED", run.reason
    assert len(witness.executions()) == run.details.attempts == 2
    assert run.details.hosts != (cut_off,)
    assert witness.overlap_s() < 0
    unheard_s = 0.0 if Direction.TO_SERVER in ways else 2 * UNANSWERED_S
    measured("taken over", taken_s, site.within(TAKEOVER_S + 2 + unheard_s))
