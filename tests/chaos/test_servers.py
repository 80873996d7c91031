"""Two servers at once, one of which freezes, dies and returns; and a server whose clock jumps (F17, F18)."""

import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from chaos.harness import HEARTBEAT_S, PATIENCE_S, TAKEOVER_S, Site, open_site
from chaos.programs import PACING, write_program
from chaos.test_hosts import LOOK_S
from drumline.contracts.spec import Retries
from support.api_process import ApiProcess
from support.hosts import ExtraHost
from support.processes import wait_until

LEASE_S = 2.0
LEADS = "this server runs the loops"
RUNS = 10
HOUR_S = 3600.0


def test_f17_two_servers_one_of_which_freezes_and_dies_place_each_run_once(
    tmp_path: Path, postgres_url: str, chance: random.Random
) -> None:
    settings = {"DRUMLINE_LEASE_S": str(LEASE_S)}
    with open_site(tmp_path, postgres_url, settings) as site:
        second = ApiProcess(site.server.directory, postgres_url, site.server.settings)
        second.start()
        site.resources.callback(second.stop)
        hosts = [site.add_host(name, cpu_devices=4) for name in ("alpha", "beta")]
        program = write_program(tmp_path, PACING)
        clients = [site.client(), site.client(second.url)]
        runs = []
        for number in range(RUNS):
            run = site.journal.submit(clients[number % 2], program, str(number), parameters={"steps": 20})
            runs.append(run)
            if number == RUNS // 2:
                site.server.send_signal(signal.SIGSTOP)
                clients[0] = clients[1]
        wait_until(
            lambda: site.server.said.count(LEADS) == 2, timeout_s=PATIENCE_S, what="the other one leads meanwhile"
        )
        # Two moments drawn by chance are the fault: when the first comes back, and when the other dies beside it.
        time.sleep(chance.uniform(0, LEASE_S))
        site.server.send_signal(signal.SIGCONT)
        time.sleep(chance.uniform(0, LEASE_S))
        second.kill()
        second.start()

        for run in (site.client().get(run.id) for run in runs):
            assert site.finish(run).state == "SUCCEEDED"
            assert run.details.attempts == 1
        assert sum(host.free_devices for host in site.fleet()) == sum(host.cpu_devices for host in hosts)


def test_f18_a_server_whose_clock_jumps_and_trembles_loses_nobody(
    tmp_path: Path, database_url: str, chance: random.Random
) -> None:
    """More than T after its start, since no lease ends before; a worker's wall clock decides nothing (simulated)."""
    offset = tmp_path / "offset"
    offset.write_text("0")
    settings = {"DRUMLINE_CHAOS_OFFSET": str(offset)}
    with open_site(tmp_path, database_url, settings, Path(__file__).with_name("shifted_server.py")) as site:
        started = time.monotonic()
        for name in ("alpha", "beta"):
            site.add_host(name)
        program, over = write_program(tmp_path, PACING), tmp_path / "over"
        retries = Retries(infrastructure=1)
        first = site.submit(program, "first", replicas=2, parameters={"until": str(over)}, retries=retries)
        wait_until(lambda: first.refresh().state == "RUNNING", timeout_s=PATIENCE_S, what="it runs")
        wait_until(lambda: time.monotonic() > started + TAKEOVER_S + 1, timeout_s=PATIENCE_S, what="leases can end")
        for jump in (HOUR_S, -HOUR_S):
            shift(offset, jump)
            hear(site, ("alpha", "beta"), times=4)  # three whole pauses between heartbeats lie in the jump
            assert first.refresh().state == "RUNNING"
        for _ in range(8):
            shift(offset, chance.uniform(-5, 5))
            time.sleep(HEARTBEAT_S / 4)  # the fault is a clock that moves more often than hosts are heard of
        over.touch()
        second = site.submit(program, "second", replicas=2, parameters={"steps": 5}, retries=retries)

        for run in (first, second):
            assert site.finish(run).state == "SUCCEEDED"
            assert run.details.attempts == 1
        wait_until(
            lambda: Counter(host.state for host in site.fleet()) == {"live": 2},
            timeout_s=2 * HEARTBEAT_S + LOOK_S,
            what="the heartbeats since the last tremble show both hosts live",
        )


def hear(site: Site, names: Sequence[str], *, times: int) -> Counter[str]:
    """Returns once the server has stamped so many more heartbeats of each; how often they were seen in which state."""
    stamps: defaultdict[str, set[datetime]] = defaultdict(set)
    seen: Counter[str] = Counter()

    def are_heard() -> bool:
        for host in site.fleet():
            stamps[host.name].add(host.last_heartbeat_at)
            seen[host.state] += host.name in names
        return all(len(stamps[name]) > times for name in names)

    wait_until(are_heard, timeout_s=PATIENCE_S, what=f"{times} heartbeats of {names}")
    return seen


def shift(offset: Path, seconds: float) -> None:
    """From now on the server's clock is off by so much."""
    draft = offset.with_suffix(".new")
    draft.write_text(str(seconds))
    draft.rename(offset)


def test_f17_a_server_that_freezes_for_longer_than_t_costs_the_workers_that_talk_to_it_no_lease(
    tmp_path: Path, postgres_url: str
) -> None:
    """More than T after the start of the one that leads, since no lease ends before."""
    with open_site(tmp_path, postgres_url) as site:
        started = time.monotonic()
        second = ApiProcess(site.server.directory, postgres_url, site.server.settings)
        second.start()
        site.resources.callback(second.stop)
        assert LEADS in site.server.said
        alpha = ExtraHost(tmp_path / "alpha", second.url, 2)
        alpha.enrol(site.http())
        site.hosts.append(alpha)
        alpha.start()
        wait_until(lambda: site.free_devices("alpha") == 2, timeout_s=PATIENCE_S, what="it offers its devices")
        wait_until(lambda: time.monotonic() > started + TAKEOVER_S + 1, timeout_s=PATIENCE_S, what="leases can end")

        second.send_signal(signal.SIGSTOP)
        seen: Counter[str] = Counter()
        frozen_until = time.monotonic() + TAKEOVER_S + 3 * HEARTBEAT_S
        while time.monotonic() < frozen_until:  # a silence of this length is the fault
            seen[site.host_state("alpha")] += 1
            time.sleep(0.5)
        second.send_signal(signal.SIGCONT)
        seen += hear(site, ("alpha",), times=5)

        assert "lost" not in seen, seen
        assert site.host_state("alpha") == "live"
        alpha.kill()
        wait_until(lambda: site.host_state("alpha") == "lost", timeout_s=4 * TAKEOVER_S, what="a dead host is given up")
