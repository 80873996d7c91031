"""A server process alone: `drumline server api` on a database of the test's choice."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

from drumline_server.app.local import read_admin_token
from support.databases import copy_migrated, new_database
from support.forks import Fork, fork_drumline

DRUMLINE = Path(sys.executable).with_name("drumline")
STOP_S = 30.0


@dataclass(eq=False)
class ApiProcess:
    """A server with its data directory `directory/data`; started again, it comes back at the same address."""

    directory: Path
    database_url: str = ""
    """Empty for SQLite in the data directory."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """More of its environment."""
    program: Sequence[str] = ()
    """What stands before `server api` on its command line; with none it is a fork that has its imports."""
    port: int = 0
    _process: subprocess.Popen[bytes] | Fork | None = None
    _lifeline: int = -1

    def start(self) -> None:
        """Until it answers. It ends with the test's process, whatever becomes of that."""
        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self.database_url and not (self.data_dir / "drumline.db").exists():
            copy_migrated(self.data_dir / "drumline.db")
        ready, told = os.pipe()
        parent, self._lifeline = os.pipe()
        with self.log.open("ab") as sink:
            self._process = self._begin(told, parent, sink.fileno())
        os.close(told)
        os.close(parent)
        with os.fdopen(ready) as lines:
            line = lines.readline()
        if not line:
            raise RuntimeError(f"the server ended with status {self._process.wait()}: {self.said}")
        self.port = urlsplit(json.loads(line)["url"]).port or 0

    @property
    def data_dir(self) -> Path:
        return self.directory / "data"

    @property
    def log(self) -> Path:
        return self.directory / "server.log"

    @property
    def said(self) -> str:
        """Its log so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        """The administrator's API token."""
        token = read_admin_token(self.data_dir)
        assert token is not None
        return token

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """`kill -9`."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM; nothing if it does not run."""
        self._end(signal.SIGTERM)

    def wait(self, timeout_s: float) -> int:
        """Its exit status, negative for a signal, once it has ended by itself."""
        assert self._process is not None
        status = self._process.wait(timeout_s)
        self._end(signal.SIGTERM)
        return status

    def send_signal(self, number: signal.Signals) -> None:
        """Such as SIGSTOP and SIGCONT."""
        assert self._process is not None
        self._process.send_signal(number)

    def _begin(self, ready: int, parent: int, output: int) -> subprocess.Popen[bytes] | Fork:
        arguments = [
            "server", "api", "--port", str(self.port), "--ready-fd", str(ready), "--parent-fd", str(parent)
        ]  # fmt: skip
        own = {"DRUMLINE_DATA_DIR": str(self.data_dir), "DRUMLINE_DATABASE_URL": self.database_url, **self.settings}
        fds = [ready, parent]
        if not self.program:
            return fork_drumline(arguments, environment=own, directory=self.directory, output=output, pass_fds=fds)
        return subprocess.Popen(
            [*self.program, *arguments],
            pass_fds=fds, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **own},
        )  # fmt: skip

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        self._process.wait(STOP_S)
        self._process = None
        os.close(self._lifeline)


@contextmanager
def api_on(database: str, settings: Mapping[str, str] = MappingProxyType({})) -> Iterator[ApiProcess]:
    """A server on a fresh SQLite file or in a fresh PostgreSQL cluster; both are gone afterwards."""
    with new_database(database) as url, tempfile.TemporaryDirectory(prefix="drumline-load-") as directory:
        api = ApiProcess(Path(directory), url, settings, program=(str(DRUMLINE),))
        api.start()
        try:
            yield api
        finally:
            api.stop()
