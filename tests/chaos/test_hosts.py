"""Hosts and what runs on them: programs crash, agents die, hosts vanish, freeze and come back (F01 to F04)."""

import random
import signal
import time
from pathlib import Path

from chaos.conftest import WHOLE, Measure
from chaos.harness import PATIENCE_S, SUSPECT_S, TAKEOVER_S, Site, seconds_until
from chaos.programs import Witness, write_program
from drumline import Run
from drumline.contracts.spec import Retries
from support.hosts import ExtraHost
from support.processes import living, wait_until

CRASHES = {
    "segfault": ("import ctypes\n    ctypes.string_at(0)", "PROGRAM_CRASHED", signal.SIGSEGV, None),
    "abort": ("import os\n    os.abort()", "PROGRAM_CRASHED", signal.SIGABRT, None),
    "os._exit": ("import os\n    os._exit(3)", "PROGRAM_EXITED", None, 3),
    "killed": ("import os, signal\n    os.kill(os.getpid(), signal.SIGKILL)", "KILLED", signal.SIGKILL, None),
}
LOOK_S = 1.0
"""How often the server looks for deadlines."""
LOST_STEPS = 10
"""What may be saved and not yet registered when a host dies: a second of steps."""


@WHOLE
def test_f01_a_program_that_crashes_fails_with_its_signal_and_its_last_words(
    whole: tuple[Site, ExtraHost], tmp_path: Path, measured: Measure
) -> None:
    site, _ = whole
    for crash, (act, code, number, exit_code) in CRASHES.items():
        source = f"import time\ndef main(run):\n    print('dies at', time.time(), flush=True)\n    {act}\n"
        program = write_program(tmp_path, source)
        run = site.finish(site.submit(program, crash, replicas=2, retries=Retries(infrastructure=0)))

        assert (run.state, run.reason and run.reason.code) == ("FAILED", code)
        (attempt,) = run.attempts
        assert (attempt.members[0].signal, attempt.members[0].exit_code) == (number, exit_code)
        died_at = float("".join(segment.text for segment in run.logs()).partition("dies at ")[2].split()[0])
        assert run.details.ended_at is not None
        measured(f"failed: {crash}", run.details.ended_at.timestamp() - died_at, site.within(1))
        wait_until(lambda: site.free_devices("alpha") == 2, timeout_s=5, what="its devices are free")


@WHOLE
def test_f02_a_killed_agent_that_is_started_again_adopts_its_program(
    whole: tuple[Site, ExtraHost], stepping: Path, witness: Witness, chance: random.Random, measured: Measure
) -> None:
    site, host = whole
    run = site.submit(stepping, replicas=2, parameters=witness.parameters)
    run_some_steps(witness, chance)
    host.kill_agent()
    killed, step = time.monotonic(), step_of(run)
    site.start_again(host)
    adopted_s = seconds_until(lambda: step_of(run) > step, "it is heard of again", killed)
    witness.enough.touch()

    assert site.finish(run).state == "SUCCEEDED"
    assert len(witness.executions()) == run.details.attempts == 1
    measured("adopted", adopted_s, site.within(10))


def test_f03_a_host_that_is_gone_for_good_is_taken_over_and_the_run_goes_on_from_its_checkpoint(
    site: Site, stepping: Path, witness: Witness, chance: random.Random, measured: Measure
) -> None:
    hosts = {name: site.add_host(name) for name in ("alpha", "beta")}
    run = site.submit(stepping, replicas=2, parameters=witness.parameters)
    run_some_steps(witness, chance)
    wait_until(lambda: bool([*run.checkpoints()]), timeout_s=PATIENCE_S, what="a checkpoint is registered")
    (lost,) = run.refresh().details.hosts
    hosts[lost].kill()
    killed, killed_at = time.monotonic(), time.time()
    suspect_s = seconds_until(lambda: site.host_state(lost) == "suspect", "it is suspect", killed)
    lost_s = site.lost_after_s(run, killed_at)
    saved = next(run.checkpoints())
    wait_until(lambda: len(witness.executions()) == 2, timeout_s=PATIENCE_S, what="it resumes elsewhere")
    witness.enough.touch()

    assert site.finish(run).state == "SUCCEEDED", run.reason
    assert run.details.hosts != (lost,)
    assert isinstance(run.result, dict)
    assert run.result["began_at"] == saved.step + 1
    first, second = witness.executions()
    assert first.steps[-1] - second.steps[0] <= LOST_STEPS
    measured("suspect", suspect_s, site.within(SUSPECT_S + LOOK_S))
    measured("taken over", lost_s, site.within(TAKEOVER_S + 2))


def test_f04_what_a_frozen_host_does_when_it_comes_back_does_not_count(
    site: Site, stepping: Path, witness: Witness, chance: random.Random, measured: Measure
) -> None:
    hosts = {name: site.add_host(name) for name in ("alpha", "beta")}
    run = site.submit(stepping, replicas=2, parameters=witness.parameters)
    run_some_steps(witness, chance)
    (frozen,) = run.refresh().details.hosts
    zombies = hosts[frozen].runners()
    hosts[frozen].freeze()
    frozen_at = time.time()
    try:
        lost_s = site.lost_after_s(run, frozen_at)
        wait_until(lambda: len(witness.executions()) == 2, timeout_s=PATIENCE_S, what="it resumes elsewhere")
        heard = site.heard_of(run)
    finally:
        hosts[frozen].thaw()
    killed_s = seconds_until(lambda: not living(zombies), "what thawed is killed")
    wait_until(lambda: site.host_state(frozen) == "live", timeout_s=PATIENCE_S, what="the host is back")
    wait_until(lambda: site.free_devices(frozen) == 2, timeout_s=PATIENCE_S, what="its devices are free")
    witness.enough.touch()

    assert site.finish(run).state == "SUCCEEDED", run.reason
    assert run.details.hosts != (frozen,)
    assert site.heard_of(run)[0] == heard[0], "the first attempt wrote nothing after its end"
    measured("taken over", lost_s, site.within(TAKEOVER_S + 2))
    measured("killed after the thaw", killed_s, site.within(2))


def run_some_steps(witness: Witness, chance: random.Random) -> None:
    """Until the program made a few steps; at how many the fault comes is by chance."""
    steps = chance.randint(3, 20)
    wait_until(lambda: witness.steps >= steps, timeout_s=PATIENCE_S, what=f"it makes {steps} steps")


def step_of(run: Run) -> int:
    """The newest step that the server heard of."""
    return run.refresh().details.progress.step or 0
