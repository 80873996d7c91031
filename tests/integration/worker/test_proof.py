"""Nothing is started twice, nothing is called dead that is not, and what hangs in the kernel holds up nobody else."""

import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from drumline.contracts.base import new_id
from drumline.contracts.reasons import EndReason
from drumline.contracts.worker_api import DeviceCheck
from support.processes import name_of, wait_until
from support.tracing import holding_on_to
from support.worker_process import WorkerProcess
from support.worker_server import WorkerServer

WITH_CHILD = """
import subprocess, time

def main(run):
    subprocess.Popen(["setsid", "sleep", "600"])
    print("up")
    time.sleep(600)
"""
FINE = "def main(run):\n    return 'fine'\n"


def launcher_of(worker: WorkerProcess) -> psutil.Process:
    (launcher,) = [process for process in worker.processes() if name_of(process) == "drumline-launch"]
    return launcher


def request(member: str, index: int = 0) -> DeviceCheck:
    return DeviceCheck(device=new_id("dev"), platform="cpu", index=index, fence=3, member=member)


def test_stray_that_cannot_be_reaped_leaves_its_member_unproven_and_holds_up_no_start(
    own_server: WorkerServer, own_worker: WorkerProcess
) -> None:
    member = own_server.assign(WITH_CHILD)
    own_server.wait_printed(member, "up")
    (stray,) = [process for process in own_worker.program_of(member) if name_of(process) == "sleep"]
    (runner,) = [process for process in own_worker.program_of(member) if name_of(process) == "drumline-runner"]
    shim = runner.parent()
    assert shim is not None
    with holding_on_to(stray):
        shim.kill()
        end = own_server.wait_drained(member, timeout_s=30)
        assert (end.reason, end.devices_released) == (EndReason.SHIM_KILLED, False)
        assert own_server.wait_drained(own_server.assign(FINE)).reason is EndReason.COMPLETED


def test_launcher_that_dies_before_its_answer_fails_the_start_once_and_runs_nothing(
    own_server: WorkerServer, own_worker: WorkerProcess
) -> None:
    launcher = launcher_of(own_worker)
    launcher.suspend()
    member = own_server.assign(FINE)
    order = own_worker.run_directory(member) / "order.json"
    wait_until(order.exists, timeout_s=30, what="the launch is under way")
    launcher.kill()

    end = own_server.wait_drained(member)
    assert (end.reason, end.devices_released) == (EndReason.START_FAILED, True)
    assert member.events == {}, "its program has not run"
    assert own_server.wait_drained(own_server.assign(FINE)).reason is EndReason.COMPLETED


def test_quarantined_device_is_probed_by_a_program_on_it(
    server: WorkerServer, worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [request(new_id("mem"), index) for index in range(2)]
    monkeypatch.setattr(server, "device_checks", tuple(wanted))
    server.wait(lambda: len(server.checked) >= 2, "both were checked")

    reports = {report.device: report for report in server.checked}
    for probe in wanted:
        report = reports[probe.device]
        assert (report.usable, report.survivors, report.fence, report.message) == (True, (), 3, "")


def test_probe_ends_what_is_left_of_the_last_holder_first(own_server: WorkerServer, own_worker: WorkerProcess) -> None:
    member = new_id("mem")
    scratch = _scratch(own_worker, member)
    with subprocess.Popen(["sleep", "600"], cwd=scratch, start_new_session=True) as left:
        probe = request(member)
        own_server.device_checks = (probe,)
        own_server.wait(lambda: bool(own_server.checked), "the device was checked")
        assert left.wait(10) == -signal.SIGKILL
    (report,) = own_server.checked
    assert (report.device, report.usable, report.survivors) == (probe.device, True, ())


def _scratch(worker: WorkerProcess, member: str) -> Path:
    """A directory in which a program of that member might still work."""
    path = worker.data_dir / "runs" / member / "scratch"
    path.mkdir(parents=True)
    return path
