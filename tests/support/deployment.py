"""A Drumline started the way the README says: `drumline up`, a process of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psutil

from drumline._transport import trusted_by
from support.processes import describe, living, processes_of, wait_until

DRUMLINE = Path(sys.executable).with_name("drumline")
ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits.py"
START_S = 90.0
STOP_S = 60.0
QUICKER = {"DRUMLINE_TIME_SCALE": "0.2", "DRUMLINE_TAKEOVER_S": "600", "DRUMLINE_CLAIM_S": "300"}
"""Heartbeats every second, and a silent host is suspect after 3; a busy machine loses no lease and no claim of 120 and
60 s."""


@dataclass(eq=False)
class Deployment:
    """A running `drumline up` with its data directory."""

    process: subprocess.Popen[bytes]
    data_dir: Path
    output: Path

    @classmethod
    def start(
        cls,
        data_dir: Path,
        *options: str,
        environment: dict[str, str] | None = None,
        command: Sequence[str] = (str(DRUMLINE),),
    ) -> "Deployment":
        """Starts on a free port; returns at once. `command`: the `drumline` of another installation."""
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        (data_dir / "client.json").unlink(missing_ok=True)
        output = data_dir.parent / f"{data_dir.name}.out"
        with output.open("wb") as sink:
            process = subprocess.Popen(
                [*command, "up", "--data-dir", str(data_dir), "--port", "0", *options],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        return cls(process, data_dir, output)

    @property
    def said(self) -> str:
        """What it printed so far."""
        return self.output.read_text(errors="replace")

    def wait_for_api(self) -> None:
        """Until the API answers."""
        self._wait((self.data_dir / "client.json").exists, "the API is ready")

    def wait_for_devices(self, count: int = 8) -> None:
        """Until a worker offers `count` free devices."""
        self.wait_for_api()
        self._wait(lambda: sum(host["free_devices"] for host in self._live_hosts()) >= count, f"{count} free devices")

    @property
    def url(self) -> str:
        """Address of API and dashboard."""
        return str(self._client_file()["url"])

    @property
    def token(self) -> str:
        """The administrator's API token."""
        return str(self._client_file()["token"])

    @property
    def environment(self) -> dict[str, str]:
        """For a CLI that talks to this deployment."""
        return {**os.environ, "DRUMLINE_URL": self.url, "DRUMLINE_TOKEN": self.token, "NO_COLOR": "1"}

    def http(self) -> httpx2.Client:
        """A bare HTTP client with the token."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx2.Client(base_url=f"{self.url}/api/v1", headers=headers, timeout=30, verify=trusted_by(self.url))

    def get(self, path: str, **parameters: Any) -> Any:
        """The JSON of a GET that must succeed."""
        with self.http() as http:
            answer = http.get(path, params=parameters)
        assert answer.status_code == httpx2.codes.OK, answer.text
        return answer.json()

    def processes(self) -> list[psutil.Process]:
        """Everything alive that belongs to it."""
        return processes_of(self.data_dir)

    def runners(self, run_id: str) -> list[psutil.Process]:
        """The processes of a run's program: those that work below the run's scratch directory."""
        members = [
            member["id"] for attempt in self.get(f"/runs/{run_id}/attempts")["items"] for member in attempt["members"]
        ]
        found = []
        for process in self.processes():
            try:
                if any(member in process.cwd() for member in members):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def stop(self) -> int:
        """Ctrl-C; the exit code. Fails if a process stays behind."""
        started = self.processes()
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(STOP_S)
        self.expect_nothing_left(started)
        return code

    def kill(self) -> None:
        """`kill -9` of the command itself, and of nothing else."""
        self.process.kill()
        self.process.wait(STOP_S)

    def expect_nothing_left(self, started: list[psutil.Process], timeout_s: float = 30.0) -> None:
        """Fails unless every process that belonged to it ends within `timeout_s`."""
        try:
            wait_until(lambda: not living(started) and not self.processes(), timeout_s=timeout_s, what="all ended")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{describe(living(started) + self.processes())}") from None

    def _live_hosts(self) -> list[dict[str, Any]]:
        return [host for host in self.get("/hosts")["items"] if host["state"] == "live"]

    def _client_file(self) -> dict[str, str]:
        loaded: dict[str, str] = json.loads((self.data_dir / "client.json").read_text())
        return loaded

    def _wait(self, condition: Any, what: str) -> None:
        def reached() -> bool:
            assert self.process.poll() is None, f"drumline up ended with {self.process.returncode}:\n{self.said}"
            return bool(condition())

        try:
            wait_until(reached, timeout_s=START_S, what=what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.said}") from None
