"""A worker says clearly why it cannot start, keeps trying where that helps, and holds no device itself."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from drumline.contracts.reasons import EndReason
from drumline.contracts.worker_api import KEYED_PROTOCOL, OLDEST_PROTOCOL, PROTOCOL_VERSION
from support.forks import fork_drumline
from support.layer import Answer, Request, problem
from support.processes import name_of, wait_until
from support.worker_process import WorkerProcess
from support.worker_server import WorkerServer


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "drumline_worker", "run", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@dataclass(frozen=True)
class Done:
    """A worker that has ended: its status, and all that it said."""

    returncode: int
    said: str


def _run_fork(directory: Path, *arguments: str) -> Done:
    """As `_run`, without the imports of a new interpreter."""
    said = directory / "said"
    with said.open("wb") as sink:
        fork = fork_drumline(["worker", "run", *arguments], directory=directory, output=sink.fileno())
    return Done(fork.wait(60), said.read_text())


def test_a_worker_without_enrolment_says_what_to_do(own_server: WorkerServer, tmp_path: Path) -> None:
    done = _run("--server", own_server.url, "--data-dir", str(tmp_path / "w"))
    assert done.returncode == 1
    assert "not enrolled; start it with --enroll-token-file" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_refused_enrolment_token_is_told(own_server: WorkerServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("drm_enr_wrong\n")
    done = _run_fork(
        tmp_path, "--server", own_server.url, "--data-dir", str(tmp_path / "w"), "--enroll-token-file", str(token)
    )
    assert done.returncode == 1
    assert "refuses the enrolment token" in done.said
    assert "drm_enr_wrong" not in done.said


def test_an_identity_that_the_server_does_not_know_is_told(
    own_server: WorkerServer, own_worker: WorkerProcess, tmp_path: Path
) -> None:
    own_worker.stop()
    own_server.revoke_worker()
    done = _run_fork(tmp_path, "--server", own_server.url, "--data-dir", str(own_worker.data_dir))
    assert done.returncode == 1
    assert "delete" in done.said
    assert "worker.json" in done.said
    assert "Traceback" not in done.said


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        pytest.param(
            problem(422, "invalid_request", "notices: no such field"), "Upgrade the server first", id="older server"
        ),
        pytest.param(
            problem(
                409, "conflict", "The worker speaks protocol 2, this server 0 and the one before.", hint="Install x"
            ),
            "Upgrade the server first",
            id="server of an older protocol",
            marks=pytest.mark.long("told as of the older server, whose answer has another status"),
        ),
        pytest.param(
            problem(409, "conflict", "This server speaks 0.", hint="Upgrade the server.", context={"protocol": 0}),
            "Upgrade the server.",
            id="server two releases older, which says so itself",
        ),
        pytest.param(
            problem(409, "conflict", "Protocol 2.", hint="Upgrade the worker on host a.", context={"protocol": 5}),
            "Upgrade the worker on host a.",
            id="newer server, which says so itself",
        ),
    ],
)
def test_a_worker_and_a_server_of_versions_too_far_apart_say_which_is_to_be_upgraded(
    own_server: WorkerServer, tmp_path: Path, refusal: Answer, said: str
) -> None:
    token = tmp_path / "token"
    token.write_text(own_server.enrolment_token)
    with own_server.layer.refuse("POST", "/worker/register", refusal):
        done = _run_fork(
            tmp_path, "--server", own_server.url, "--data-dir", str(tmp_path / "w"), "--enroll-token-file", str(token)
        )
    assert done.returncode == 1
    assert said in done.said
    assert refusal.body.decode().partition('"detail": "')[2].partition('"')[0] in done.said
    assert "worker.json" not in done.said
    assert "Traceback" not in done.said


_UNTIL_TOLD_OF = """
import time

def main(run):
    for step in range(10_000):
        run.log(step=step, value=1.0)
        time.sleep(0.02)
"""


@pytest.mark.parametrize("older", range(OLDEST_PROTOCOL, PROTOCOL_VERSION))
def test_with_a_server_of_the_release_before_a_worker_speaks_the_protocol_of_then(
    own_server: WorkerServer, tmp_path: Path, older: int
) -> None:
    """The server's answer to a protocol that it does not know is what `lifecycle.registration` says."""
    spoken: list[int] = []
    beats: list[dict[str, Any]] = []

    def answer_as_then(request: Request) -> Answer | None:
        spoken.append(request.json()["protocol"])
        if spoken[-1] == older:
            return None
        return problem(409, "conflict", "Too new.", hint="Upgrade.", context={"protocol": older})

    def hear_as_then(request: Request) -> Answer | None:
        beats.append(request.json())
        told = [*beats[-1]["members"], *beats[-1]["unsent"]]
        understood = beats[-1].get("protocol") == (older if older >= KEYED_PROTOCOL else None)
        if understood and not any("key" in each for each in told):
            return None
        return problem(422, "invalid_request", "not a known field")

    own_server.terms["protocol"] = older
    own_server.layer.decide("POST", "/worker/register", answer_as_then)
    own_server.layer.decide("POST", "/worker/heartbeat", hear_as_then)
    worker = WorkerProcess(own_server, tmp_path / "worker")
    worker.start()
    worker.wait_registered()
    member = own_server.assign(_UNTIL_TOLD_OF)
    own_server.wait(lambda: bool(own_server.told_of(member.id, 0)), "a heartbeat tells where it stands")
    own_server.cancel(member)
    own_server.wait_drained(member)
    worker.stop()

    assert spoken == [PROTOCOL_VERSION, older]
    assert beats
    assert f"speaking protocol {older}" in worker.said


def test_a_second_worker_on_the_same_directory_is_refused(
    own_server: WorkerServer, own_worker: WorkerProcess, tmp_path: Path
) -> None:
    done = _run_fork(tmp_path, "--server", own_server.url, "--data-dir", str(own_worker.data_dir))
    assert done.returncode == 1
    assert "another worker runs on" in done.said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cpu-devices", "-1"], "greater than or equal to 0"),
        (["--enroll-token-file", "/nowhere/at/all"], "does not exist"),
    ],
)
def test_wrong_options_are_told_without_a_traceback(arguments: list[str], said: str) -> None:
    done = _run(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_worker_waits_for_a_server_that_is_not_there_yet(tmp_path: Path) -> None:
    server = WorkerServer()
    server.start()
    server.stop()
    worker = WorkerProcess(server, tmp_path / "worker")
    worker.start()
    wait_until(lambda: "trying again in" in worker.said, timeout_s=30, what="it says that it waits")
    server.start()
    worker.wait_registered()
    worker.stop()
    server.close()
    assert "Traceback" not in worker.said


def test_the_worker_lists_its_simulated_devices(server: WorkerServer, worker: WorkerProcess) -> None:
    registered = server.registrations[-1]
    assert [(d.platform, d.index, d.simulated) for d in registered.devices] == [("cpu", i, True) for i in range(4)]
    assert registered.jax_version
    assert registered.memory_bytes > 0


def test_neither_agent_nor_celery_child_has_jax_in_memory(server: WorkerServer, worker: WorkerProcess) -> None:
    assert "jaxlib" not in Path(f"/proc/{worker.pid}/maps").read_text()


def test_the_launcher_has_one_thread_and_no_descriptor_too_many(server: WorkerServer, worker: WorkerProcess) -> None:
    (launcher,) = [process for process in worker.processes() if name_of(process) == "drumline-launch"]
    before = set(os.listdir(f"/proc/{launcher.pid}/fd"))
    for _ in range(3):
        server.wait_drained(server.assign("def main(run):\n    return 1\n"))
    assert launcher.num_threads() == 1
    descriptors = Path(f"/proc/{launcher.pid}/fd")
    wait_until(lambda: set(os.listdir(descriptors)) == before, timeout_s=10, what="no descriptor of a past run is left")


def test_a_bundle_with_another_content_than_its_name_is_not_run(server: WorkerServer, worker: WorkerProcess) -> None:
    member = server.assign("def main(run):\n    return 'never fetched before'\n", known=False)
    server.replace_bundle(member, b"PK something else")
    server.add(member)
    end = server.wait_drained(member)
    assert end.reason == EndReason.BUNDLE_UNAVAILABLE
    assert "asked for sha256:" in end.message
