"""A worker's machine reboots, and its wall clock jumps (F38, F18)."""

import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from chaos.conftest import Measure
from chaos.harness import PATIENCE_S, TAKEOVER_S, Site
from chaos.programs import PACING, Witness, write_program
from drumline import Run
from drumline.contracts.spec import Retries
from support.processes import wait_until

SHIFTED = Path(__file__).with_name("shifted_machine.py")
HOUR_S = 3600.0
REGISTERED_S = 6.0
"""A reboot is known by the registration after it."""
STEPS = 120
"""Of PACING, for which a jump lasts: longer than two heartbeats take."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What is told of a host's machine in the place of the truth; `python` is the interpreter there."""

    directory: Path

    @classmethod
    def at(cls, directory: Path, *, cards: str) -> "Machine":
        """With the addresses of its network cards, one a line."""
        directory.mkdir()
        machine = cls(directory)
        machine.tell("offset", "0")
        machine.tell("boot_id", "first")
        machine.tell("cards", cards)
        machine.python.write_text(
            "#!/bin/sh\n"
            f"export DRUMLINE_CHAOS_MACHINE={shlex.quote(str(directory))}\n"
            f'exec {shlex.quote(sys.executable)} {shlex.quote(str(SHIFTED))} "$@"\n'
        )
        machine.python.chmod(0o700)
        return machine

    @property
    def python(self) -> Path:
        return self.directory / "python"

    def tell(self, what: str, value: str) -> None:
        """From now on, for all its processes."""
        draft = self.directory / f"{what}.new"
        draft.write_text(value)
        draft.rename(self.directory / what)


@pytest.mark.parametrize(
    ("cards", "reason", "limit_s"),
    [("02:00:00:00:00:01\n", "HOST_REBOOTED", REGISTERED_S), ("", "LOST", TAKEOVER_S + 2)],
    ids=["known by its card", "known by its boot"],
)
def test_f38_a_rebooted_host_gives_up_what_it_ran_and_goes_on_with_it(
    *, site: Site, stepping: Path, witness: Witness, measured: Measure, cards: str, reason: str, limit_s: float
) -> None:
    """At once where the machine is known to be the same; else it may be another, and the lease has to end."""
    machine = Machine.at(site.directory / "machine", cards=cards)
    host = site.add_host("alpha", python=machine.python)
    run = site.submit(stepping, replicas=2, parameters=witness.parameters, retries=Retries(infrastructure=1))
    wait_until(lambda: bool(witness.executions()), timeout_s=PATIENCE_S, what="it runs")
    host.kill()
    killed_at = time.time()
    machine.tell("boot_id", "second")
    site.start_again(host)
    since = time.time() if reason == "HOST_REBOOTED" else killed_at

    measured("given up", site.lost_after_s(run, since), site.within(limit_s))
    wait_until(lambda: len(witness.executions()) == 2, timeout_s=PATIENCE_S, what="it goes on")
    witness.enough.touch()
    assert site.finish(run).state == "SUCCEEDED", run.reason
    assert [attempt.reason and attempt.reason.code for attempt in run.attempts] == ["COMPLETED", reason]
    assert witness.overlap_s() < 0


def test_f18_a_worker_whose_wall_clock_jumps_keeps_its_lease_and_its_runs(
    site: Site, tmp_path: Path, quick: Path
) -> None:
    """Leases count on the boot clock, and a run began between its submission and its end, whatever its worker says."""
    machine = Machine.at(site.directory / "machine", cards="")
    site.add_host("alpha", python=machine.python)
    program, over = write_program(tmp_path, PACING), tmp_path / "over"
    long = site.submit(program, "long", parameters={"until": str(over)}, retries=Retries(infrastructure=0))
    make_steps(long)
    short = []
    for jump in (HOUR_S, -HOUR_S):
        machine.tell("offset", str(jump))
        short.append(site.finish(site.submit(quick, f"{jump:+}", retries=Retries(infrastructure=0))))
        make_steps(long)
        assert site.host_state("alpha") == "live"
    over.touch()

    for run in (site.finish(long), *short):
        assert run.state == "SUCCEEDED", run.reason
        created_at, started_at, ended_at = run.details.created_at, run.details.started_at, run.details.ended_at
        assert started_at is not None
        assert ended_at is not None
        assert created_at <= started_at <= ended_at


def make_steps(run: Run) -> None:
    """The server hears of so many more."""
    enough = (run.refresh().details.progress.step or 0) + STEPS
    wait_until(
        lambda: (run.refresh().details.progress.step or 0) >= enough, timeout_s=PATIENCE_S, what=f"step {enough}"
    )
