"""Hosts die again and again, by themselves and by a program's doing (F20, F21)."""

import random
import time
from pathlib import Path

from chaos.conftest import Scale
from chaos.harness import Site
from chaos.programs import PACING, write_program
from drumline.contracts.spec import Retries
from support.processes import wait_until

HOSTS, BUDGET = 3, 3
DEADLY = """
    import os
    import signal

    import psutil


    def main(run):
        \"\"\"Kills what drives it: the launcher, then its own shim.\"\"\"
        shim = psutil.Process(os.getppid())
        shim.parent().kill()
        shim.send_signal(signal.SIGKILL)
"""


def test_f20_hosts_that_die_again_and_again_leave_no_run_behind(
    site: Site, chance: random.Random, tmp_path: Path, scale: Scale
) -> None:
    hosts = [site.add_host(f"host{number}", cpu_devices=4) for number in range(HOSTS)]
    program = write_program(tmp_path, PACING)
    runs = [
        site.submit(
            program, str(number), parameters={"steps": scale.dying_steps}, retries=Retries(infrastructure=BUDGET)
        )
        for number in range(scale.dying_runs)
    ]
    wait_until(lambda: any(run.refresh().state == "RUNNING" for run in runs), timeout_s=60, what="they run")
    for round_number in range(scale.dying_rounds):
        dying = hosts if round_number == 0 else chance.sample(hosts, 1)
        for host in dying:
            chance.choice((host.kill, host.kill_agent))()
        for host in dying:
            host.start()
        time.sleep(chance.uniform(*scale.dying_every_s))  # the fault comes again at any time

    for run in runs:
        site.finish(run, scale.patience_s)
        assert run.details.attempts <= 1 + BUDGET
        if run.state != "SUCCEEDED":
            assert run.reason is not None
            assert (run.state, run.reason.code) in (("FAILED", "POISON"), ("FAILED", "HOST_REBOOTED"))
    wait_until(
        lambda: sum(host.free_devices for host in site.fleet()) == 4 * HOSTS, timeout_s=90, what="all devices are free"
    )


def test_f21_a_program_that_takes_its_hosts_down_is_poison_and_disturbs_nobody(site: Site, tmp_path: Path) -> None:
    hosts = [site.add_host(name, cpu_devices=3) for name in ("alpha", "beta")]
    pacing, over = write_program(tmp_path, PACING, "pacing"), tmp_path / "over"
    others = [site.submit(pacing, name, replicas=2, parameters={"until": str(over)}) for name in ("one", "two")]
    wait_until(lambda: all(host.runners() for host in hosts), timeout_s=90, what="a run on each host")

    poison = site.finish(site.submit(write_program(tmp_path, DEADLY), "poison"))

    assert (poison.state, poison.reason and poison.reason.code) == ("FAILED", "POISON")
    attempts = list(poison.attempts)
    assert len({member.host for attempt in attempts for member in attempt.members}) == len(attempts) == 2
    over.touch()
    for run in others:
        assert site.finish(run).state == "SUCCEEDED"
        assert run.details.attempts == 1
