"""A server and one host on this machine, in the environment whose interpreter records; all through CLI and REST."""

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

REPLICAS = 2
_WAIT_S, _STOP_S, _POLL_S = 240.0, 60.0, 0.05
_TAKEOVER = {"DRUMLINE_TAKEOVER_S": "45"}
"""The shortest time after which a silent host counts as dead: nobody here wants to wait for the usual two minutes."""


class TraceError(Exception):
    """A trace cannot be recorded; the message says which wait came to nothing."""


@dataclass(slots=True)
class Deployment:
    """`drumline up` without a worker, and the worker of one host beside it, which a trace may kill."""

    python: Path
    folder: Path
    up: subprocess.Popen[bytes]
    host: subprocess.Popen[bytes] | None = None

    def drumline(self, *arguments: str) -> str:
        """What the command prints."""
        done = subprocess.run(
            [self.python.with_name("drumline"), *arguments],
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode:
            raise TraceError(f"drumline {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    @contextmanager
    def following(self, run: str, printed: Path) -> Iterator[None]:
        """With `drumline logs --follow` of the run, which prints into a file."""
        with printed.open("wb") as output:
            follower = subprocess.Popen(
                [self.python.with_name("drumline"), "logs", "--follow", run],
                env=self._environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
        try:
            yield
        finally:
            follower.terminate()
            follower.wait(_STOP_S)

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "DRUMLINE_DATA_DIR": str(self.folder / "server"), "NO_COLOR": "1"}

    def get(self, path: str) -> Any:
        """JSON of the REST API. Any: whatever it answers."""
        client = json.loads((self.folder / "server" / "client.json").read_text())
        request = urllib.request.Request(
            f"{client['url']}/api/v1{path}", headers={"Authorization": f"Bearer {client['token']}"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    @property
    def url(self) -> str:
        """Of API and dashboard."""
        return str(json.loads((self.folder / "server" / "client.json").read_text())["url"])

    def start_host(self) -> None:
        """Returns when its devices are free."""
        token = self.folder / "enrolment"
        token.write_text(self.drumline("server", "token", "--kind", "enr"))
        command = ["worker", "run", "--server", self.url, "--data-dir", str(self.folder / "host"), "--name", "house"]
        command += ["--enroll-token-file", str(token), "--cpu-devices", str(REPLICAS)]
        with (self.folder / "host.out").open("wb") as output:
            self.host = subprocess.Popen(
                [self.python.with_name("drumline"), *command],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        wait_until(self.is_free, "the host's devices are free")

    def is_free(self) -> bool:
        """Whether a run could start at once."""
        return any(host["state"] == "live" and host["free_devices"] >= REPLICAS for host in self.get("/hosts")["items"])

    def kill_host(self) -> None:
        """As when its power fails: every process of it at once."""
        assert self.host is not None
        agent = psutil.Process(self.host.pid)
        for process in [agent, *agent.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.host.wait(_STOP_S)

    def state(self, run: str) -> str:
        """The run's."""
        return str(self.get(f"/runs/{run}")["state"])


@contextmanager
def deployed(python: Path, folder: Path, dashboard: Path) -> Iterator[Deployment]:
    """With the dashboard that was built into that folder. Stopped in the end, whatever happens; the host first."""
    output = folder / "server.out"
    with output.open("wb") as sink:
        up = subprocess.Popen(
            [python.with_name("drumline"), "up", "--no-worker", "--port", "0", "--data-dir", str(folder / "server")],
            stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True,
            env={**os.environ, **_TAKEOVER, "DRUMLINE_STATIC_DIR": str(dashboard)},
        )  # fmt: skip
    deployment = Deployment(python, folder, up)
    try:
        wait_until((folder / "server" / "client.json").exists, "the server is ready", lambda: output.read_text())
        deployment.start_host()
        yield deployment
    finally:
        for process, number in ((deployment.host, signal.SIGTERM), (up, signal.SIGINT)):
            if process is not None and process.poll() is None:
                process.send_signal(number)
                process.wait(_STOP_S)


def wait_until(condition: Callable[[], bool], what: str, explain: Callable[[], str] = str) -> None:
    """Returns as soon as it holds. Raises TraceError naming `what`."""
    deadline = time.monotonic() + _WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TraceError(f"{what}: not within {_WAIT_S:.0f} s {explain()}")
        time.sleep(_POLL_S)
