"""Programs that do not want to end, and one that cannot be ended (F37)."""

import time
from pathlib import Path

from chaos.conftest import WHOLE, Measure
from chaos.harness import KILL_AFTER_TERM_S, PATIENCE_S, Site, seconds_until
from chaos.programs import PACING, write_program
from drumline.contracts.spec import Limits
from support.hosts import ExtraHost
from support.processes import living, wait_until
from support.tracing import holding_on_to

pytestmark = WHOLE
GRACE_S = 1.0
END_S = GRACE_S + KILL_AFTER_TERM_S + 5
"""TERM after the grace, then KILL."""
QUARANTINED_S = 40.0
FLEEING = """
    import os
    import signal
    import time


    def flee():
        if os.fork():
            return
        os.setsid()
        if os.fork():
            os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)


    def main(run):
        \"\"\"Ignores every wish to stop, and so do its descendants in sessions of their own.\"\"\"
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        flee()
        flee()
        print("up", flush=True)
        while True:
            try:
                run.log(step=0, x=1.0)
            except BaseException:
                pass
            time.sleep(0.1)
"""


def test_f37_a_program_that_ignores_everything_and_flees_is_ended_with_all_descendants(
    whole: tuple[Site, ExtraHost], tmp_path: Path, measured: Measure
) -> None:
    site, host = whole
    run = site.submit(write_program(tmp_path, FLEEING), limits=Limits(grace_s=GRACE_S))
    wait_until(lambda: len(host.runners()) == 3, timeout_s=PATIENCE_S, what="it has fled")
    program = host.runners()
    run.cancel()
    measured("all of it is dead", seconds_until(lambda: not living(program), "dead"), END_S)
    assert site.finish(run).state == "CANCELLED"
    assert site.fleet()[0].free_devices == 2


def test_f37_devices_of_a_process_that_cannot_be_killed_are_quarantined_until_it_is_gone(
    whole: tuple[Site, ExtraHost], tmp_path: Path, measured: Measure
) -> None:
    """A tracer keeps the killed process from going, as a hang in the kernel would."""
    site, host = whole
    run = site.submit(write_program(tmp_path, PACING), parameters={"steps": 6000}, limits=Limits(grace_s=GRACE_S))
    wait_until(lambda: run.refresh().state == "RUNNING", timeout_s=PATIENCE_S, what="it runs")
    (runner,) = host.runners()

    def states() -> list[str]:
        return sorted(device.state for device in site.client().devices())

    with holding_on_to(runner):
        shim = runner.parent()
        assert shim is not None
        shim.kill()
        killed = time.monotonic()
        quarantined_s = seconds_until(lambda: states() == ["FREE", "QUARANTINED"], "its device is quarantined", killed)
        measured("quarantined", quarantined_s, QUARANTINED_S)
        other = site.submit(write_program(tmp_path, PACING, "other"), "other", parameters={"steps": 5})
        assert site.finish(other).state == "SUCCEEDED", "the other device still takes runs"
    run.cancel()
    wait_until(lambda: states() == ["FREE", "FREE"], timeout_s=PATIENCE_S, what="a probe frees it")
    assert site.finish(run).state == "CANCELLED"
