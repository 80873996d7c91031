"""A worker as a real process, against a WorkerServer."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from support.forks import Fork, fork_drumline
from support.processes import describe, living, processes_of, wait_until
from support.worker_reports import MemberRecord
from support.worker_server import WorkerServer

SECRET = "drumline-test-secret-7d1f"


@dataclass(eq=False)
class WorkerProcess:
    """`drumline worker run`, with a parent pipe that the test holds."""

    server: WorkerServer
    data_dir: Path
    cpu_devices: int = 4
    environment: dict[str, str] = field(default_factory=dict)
    spares: bool = True
    """Whether its first launcher and Celery child are forks of what has their imports."""
    process: Fork | None = None
    parent_pipe: int = -1

    def start(self) -> None:
        """Starts; enrols on the first start."""
        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        theirs, self.parent_pipe = os.pipe()
        token_file = self.data_dir / "enrolment-token"
        token_file.write_text(self.server.enrolment_token)
        with self.output.open("ab") as sink:
            self.process = fork_drumline(
                [
                    "worker", "run", "--server", self.server.url, "--data-dir", str(self.data_dir),
                    "--name", "test-host", "--cpu-devices", str(self.cpu_devices),
                    "--enroll-token-file", str(token_file), "--parent-fd", str(theirs),
                ],
                output=sink.fileno(), pass_fds=[theirs], directory=self.data_dir, spares=self.spares,
                environment={"DRUMLINE_TEST_SECRET": SECRET, **self.environment},
            )  # fmt: skip
        os.close(theirs)

    @property
    def output(self) -> Path:
        return self.data_dir.parent / f"{self.data_dir.name}.out"

    @property
    def said(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def wait_registered(self, times: int = 1) -> None:
        self.server.wait(lambda: len(self.server.registrations) >= times, f"{times} registrations\n{self.said}")

    def end_parent(self) -> None:
        """What a killed parent looks like to its children."""
        os.close(self.parent_pipe)
        self.parent_pipe = -1

    def kill(self) -> None:
        """`kill -9` of the agent alone."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def stop(self) -> None:
        """Ends it by the end of its parent; fails the test when anything is left."""
        if self.parent_pipe >= 0:
            self.end_parent()
        if self.process is not None:
            self.process.wait(30)
        self.expect_nothing_left()

    def expect_nothing_left(self, timeout_s: float = 20.0) -> None:
        try:
            wait_until(lambda: not self.processes(), timeout_s=timeout_s, what="every process ended")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{describe(self.processes())}\n{self.said}") from None

    def processes(self) -> list[psutil.Process]:
        return processes_of(self.data_dir)

    def run_directory(self, member: MemberRecord) -> Path:
        return self.data_dir / "runs" / member.id

    def program_of(self, member: MemberRecord) -> list[psutil.Process]:
        """The runner and what it started, as far as they stayed in the scratch directory."""
        scratch = str(self.run_directory(member) / "scratch")
        return [process for process in self.processes() if _cwd(process) == scratch]

    def wait_program_gone(self, processes: list[psutil.Process], timeout_s: float = 20.0) -> None:
        wait_until(lambda: not living(processes), timeout_s=timeout_s, what="the program's processes are gone")


@contextmanager
def running_worker(server: WorkerServer, data_dir: Path, *, spares: bool = True) -> Iterator[WorkerProcess]:
    """A worker that has registered; nothing of it may be left after the block."""
    worker = WorkerProcess(server, data_dir, spares=spares)
    worker.start()
    worker.wait_registered()
    yield worker
    worker.stop()


def _cwd(process: psutil.Process) -> str:
    try:
        return str(process.cwd())
    except psutil.Error:
        return ""
