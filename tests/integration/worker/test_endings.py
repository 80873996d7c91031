"""However a program ends, the worker says how, and nothing of it is left."""

import os
import signal
from dataclasses import dataclass

import psutil
import pytest

from drumline import bundle
from drumline.contracts.reasons import EndReason
from drumline_worker.host.rundir import RunDirectory
from support.processes import living, wait_until
from support.worker_process import WorkerProcess
from support.worker_server import WorkerServer


@dataclass(frozen=True)
class Case:
    source: str
    reason: EndReason
    exit_code: int | None
    signal: int | None = None
    message: str = ""
    logged: str = ""


CASES = {
    "raises": Case(
        "def main(run):\n    print('before')\n    raise ValueError('the loss is nan')\n",
        EndReason.PROGRAM_ERROR, 1, message="ValueError: the loss is nan", logged='File "job.py", line 3, in main',
    ),
    "exits hard": Case(
        "import os\ndef main(run):\n    os._exit(3)\n", EndReason.PROGRAM_EXITED, 3, message="exited with code 3"
    ),
    "exits with 0 before it returns": Case(
        "import os\ndef main(run):\n    os._exit(0)\n", EndReason.PROGRAM_EXITED, 0, message="before main returned"
    ),
    "sys.exit with text": Case(
        "import sys\ndef main(run):\n    sys.exit('no data')\n", EndReason.PROGRAM_EXITED, 1, logged="no data"
    ),
    "segfaults": Case(
        "import ctypes\ndef main(run):\n    print('hello')\n    ctypes.string_at(0)\n",
        EndReason.PROGRAM_CRASHED, None, signal.SIGSEGV, message="SIGSEGV", logged="Segmentation fault",
    ),
    "aborts": Case(
        "import os\ndef main(run):\n    os.abort()\n", EndReason.PROGRAM_CRASHED, None, signal.SIGABRT, "SIGABRT"
    ),
    "kills itself": Case(
        "import os\ndef main(run):\n    os.kill(os.getpid(), 9)\n", EndReason.KILLED, None, signal.SIGKILL, "SIGKILL"
    ),
    "runs out of memory": Case(
        "def main(run):\n    raise MemoryError\n", EndReason.OUT_OF_MEMORY, 1, message="MemoryError"
    ),
    "has no main": Case(
        "def other(run):\n    return 1\n", EndReason.BAD_PROGRAM, 1, message="no function 'main'"
    ),
    "fails on import": Case(
        "import nothing_of_this_name\n", EndReason.BAD_PROGRAM, 1, message="nothing_of_this_name"
    ),
    "does not take its parameters": Case(
        "def main(run, *, needed):\n    return 1\n", EndReason.BAD_PROGRAM, 1, message="needed"
    ),
    "returns what JSON cannot hold": Case(
        "def main(run):\n    return {'x': object()}\n", EndReason.BAD_RESULT, 1, message="result['x'] is a object"
    ),
    "stops by itself": Case(
        "from drumline.job import RunStopping\ndef main(run):\n    raise RunStopping('enough')\n",
        EndReason.PROGRAM_ERROR, 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_end_of_a_program_is_told_with_its_reason(case: Case, server: WorkerServer, worker: WorkerProcess) -> None:
    archive = bundle.pack_source("job.py", case.source.encode())  # the server takes no program that cannot run
    member = server.assign("", archive=archive)
    end = server.wait_drained(member)
    assert (end.reason, end.exit_code, end.signal) == (case.reason, case.exit_code, case.signal), member.log
    assert case.message in end.message
    assert case.logged in member.log
    assert end.devices_released
    assert member.of_kind("result") == []


def test_a_runner_killed_from_outside_is_infrastructure(server: WorkerServer, worker: WorkerProcess) -> None:
    member = server.assign("import time\ndef main(run):\n    print('up')\n    time.sleep(600)\n")
    server.wait_printed(member, "up")
    (runner,) = worker.program_of(member)
    runner.kill()
    end = server.wait_drained(member, timeout_s=5)
    assert (end.reason, end.signal, end.devices_released) == (EndReason.KILLED, signal.SIGKILL, True)


def test_a_killed_shim_takes_its_program_along_and_is_reported(server: WorkerServer, worker: WorkerProcess) -> None:
    member = server.assign(
        "import subprocess, time\ndef main(run):\n"
        "    subprocess.Popen(['setsid', 'sleep', '600'])\n    print('up')\n    time.sleep(600)\n"
    )
    server.wait_printed(member, "up")
    program = worker.program_of(member)
    assert len(program) == 2
    (runner,) = (process for process in program if process.name() == "drumline-runner")
    shim = runner.parent()
    assert shim is not None
    assert shim.name() == "drumline-shim"
    shim.kill()
    end = server.wait_drained(member, timeout_s=10)
    assert (end.reason, end.devices_released) == (EndReason.SHIM_KILLED, True)
    assert living(program) == []


def test_an_error_of_the_agent_itself_does_not_lose_the_end(server: WorkerServer, worker: WorkerProcess) -> None:
    member = server.assign("import time\ndef main(run):\n    print('up')\n    time.sleep(600)\n")
    server.wait_printed(member, "up")
    directory = RunDirectory(worker.run_directory(member))
    (directory.path / "end.json").mkdir()  # reading it fails in a way that nobody foresaw
    shim = directory.shim()
    assert shim is not None
    os.kill(shim.pid, signal.SIGKILL)
    wait_until(lambda: f"error of ours in the life of {member.id}" in worker.said, timeout_s=30, what="it failed")

    (directory.path / "end.json").rmdir()

    assert server.wait_drained(member).reason is EndReason.SHIM_KILLED


def test_descendants_that_fled_into_sessions_of_their_own_are_ended(
    server: WorkerServer, worker: WorkerProcess
) -> None:
    program = """
import os, signal, time

told, tell = os.pipe()

def flee():
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("fled", os.getpid(), flush=True)
    os.write(tell, b"x")
    time.sleep(600)

def main(run):
    flee()
    flee()
    os.system("sleep 600 &")
    os.read(told, 1)
    os.read(told, 1)
    return "done"
"""
    member = server.assign(program)
    end = server.wait_drained(member)
    assert (end.reason, end.devices_released) == (EndReason.COMPLETED, True), member.log
    fled = [int(line.split()[1]) for line in member.log.splitlines() if line.startswith("fled")]
    assert len(fled) == 2
    assert not any(psutil.pid_exists(pid) for pid in fled)


def test_a_module_that_hides_an_installed_one_is_refused_with_its_name(
    server: WorkerServer, worker: WorkerProcess
) -> None:
    archive = bundle.pack_source("json.py", b"def main(run):\n    return 1\n")
    end = server.wait_drained(server.assign("", archive=archive, entrypoint="json:main"))
    assert end.reason == EndReason.BAD_PROGRAM
    assert "rename the file" in end.message


def test_a_bundle_that_the_server_does_not_have_ends_the_member(server: WorkerServer, worker: WorkerProcess) -> None:
    member = server.assign("def main(run):\n    return 'gone'\n", known=False)
    server.remove_bundle(member)
    server.add(member)
    end = server.wait_drained(member)
    assert (end.reason, end.last_seq, end.devices_released) == (EndReason.BUNDLE_UNAVAILABLE, 0, True)


def test_a_program_that_forges_messages_is_refused_and_judged_by_its_exit(
    server: WorkerServer, worker: WorkerProcess
) -> None:
    program = """
import json, os, socket, struct

def main(run):
    links = [int(fd) for fd in os.listdir("/proc/self/fd")]
    (number,) = [fd for fd in links if _is_socket(fd) and _maker(fd) == os.getppid()]
    link = socket.socket(fileno=os.dup(number))
    for message in (
        {"kind": "ended", "reason": "COMPLETED"},
        {"kind": "failed", "reason": "KILLED", "message": ""},
        {"kind": "log", "stream": "stdout", "text": "forged", "offset": 0},
        {"kind": "progress", "step": -1},
        {"kind": "state", "phase": "running", "seq": 4000},
        {"kind": "metrics", "names": ["a"], "steps": [1, 2], "times": [], "values": "x"},
    ):
        frame = json.dumps(message).encode()
        link.sendall(struct.pack(">I", len(frame)) + frame)
    link.sendall(struct.pack(">I", 70_000))
    os._exit(7)

def _maker(fd):
    link = socket.socket(fileno=os.dup(fd))
    return struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]

def _is_socket(fd):
    try:
        return os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")
    except OSError:
        return False
"""
    member = server.assign(program)
    end = server.wait_drained(member)
    assert (end.reason, end.exit_code) == (EndReason.PROGRAM_EXITED, 7), member.log
    notes = "".join(event.text for event in member.of_kind("log") if event.stream == "system")
    assert notes.count("refused a message") >= 6
    assert "a frame claims 70000 bytes" in notes
    assert "forged" not in member.log
