"""What a server needs of its machine: a directory of its own, private files, its socket, calls to itself, child
processes.

Light: `drumline up` and `drumline server` import it before anything else, so it needs errors and the standard library.
Children are in sessions of their own, restarted with backoff, and ended in order or at once.
"""

import asyncio
import fcntl
import http.client
import json
import os
import signal
import socket
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from drumline_server.base.errors import DataDirectoryError, ListenError, LocalApiError


def prepare(directory: Path) -> None:
    """Makes the directory, readable by this user alone. Raises DataDirectoryError if others may write in it."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise DataDirectoryError(f"The data directory {directory} cannot be made: {error.strerror}.") from error
    found = directory.stat()
    if found.st_uid != os.geteuid():
        raise DataDirectoryError(f"The data directory {directory} belongs to another user; choose one of your own.")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise DataDirectoryError(
            f"Others may write in the data directory {directory}: run chmod 700 {directory}, or choose another."
        )


@contextmanager
def hold_lock(directory: Path, name: str) -> Iterator[None]:
    """Inside, no other process is inside with the same file."""
    descriptor = os.open(directory / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write_private(path: Path, text: str) -> None:
    """Puts `text` at `path` in one step, readable and writable by this user alone."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


ADMIN_TOKEN_FILE = "admin_token"


def read_admin_token(data_dir: Path) -> str | None:
    """The admin token kept in the data directory, if any."""
    try:
        return (data_dir / ADMIN_TOKEN_FILE).read_text().strip() or None
    except FileNotFoundError:
        return None


def keep_admin_token(data_dir: Path, secret: str) -> None:
    """Writes the admin token to a file that only this user can read."""
    write_private(data_dir / ADMIN_TOKEN_FILE, f"{secret}\n")


BACKLOG = 512


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on `host` and `port`, on a free one for port 0. Raises ListenError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ListenError(
            f"Port {port} of {host} cannot be used: {error.strerror}. Choose another with --port, or --port 0 for any."
        ) from error
    return listener


def address(listener: socket.socket) -> str:
    """The URL at which a listening socket is reached."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class LocalApi:
    """A server of this machine, and an admin token."""

    url: str
    token: str

    def login_link(self) -> str:
        """A link that signs a browser in, once."""
        return f"{self.url}/login#code={self._call('POST', '/login-codes')['code']}"

    def create_token(self, name: str, kind: str, role: str, expires_in_s: int | None = None) -> str:
        """The secret of a new token."""
        body = {"name": name, "kind": kind, "role": role}
        created = self._call(
            "POST", "/tokens", body if expires_in_s is None else {**body, "expires_in_s": expires_in_s}
        )
        return str(created["secret"])

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        try:
            connection.request(method, f"/api/v1{path}", json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            content: dict[str, Any] = json.loads(answer.read() or b"{}")
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise LocalApiError(f"The server at {self.url} cannot be reached: {error}.") from error
        finally:
            connection.close()
        if answer.status >= 400:
            raise LocalApiError(f"The server at {self.url} refused: {content.get('detail', answer.reason)}")
        return content


BACKOFF_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_STEADY_S = 30.0
"""A child that lived so long starts over with the shortest backoff."""
_LATELY_S = 600.0
_ENDS_BEFORE_IT_STOOD, _ENDS_AFTER = 2, 3
"""So many ends within `_LATELY_S` are a loop: what never stood has no chance that another start would bring."""
_LAST_BYTES = 64 * 1024
_MOST_CHARACTERS = 600


@dataclass(frozen=True, slots=True)
class Command:
    """What to run: arguments, more environment and what of ours is left out, descriptors to hand down.

    Those of `given_fds` are closed here afterwards.
    """

    arguments: Sequence[str]
    environment: dict[str, str] = field(default_factory=dict)
    kept_fds: tuple[int, ...] = ()
    given_fds: tuple[int, ...] = ()
    withheld: tuple[str, ...] = ()
    """How names of the environment begin that it does not get."""


def _without(withheld: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(withheld)}


class Child:
    """One process. `make` gives its command again for each start; output goes to the end of `log`."""

    def __init__(self, name: str, make: Callable[[], Command], log: Path) -> None:
        self.name = name
        self._make = make
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self._failures = 0
        self._started_at = 0.0
        self._ends: list[float] = []
        self.has_stood = False
        self._told_at: float | None = None
        self.dying = asyncio.Event()
        """It dies in a loop."""

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def start(self) -> None:
        """Starts the process. Raises OSError if it cannot be."""
        command = self._make()
        try:
            with open(os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *command.arguments,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**_without(command.withheld), **command.environment},
                    pass_fds=(*command.kept_fds, *command.given_fds),
                    start_new_session=True,
                )
        finally:
            for fd in command.given_fds:
                os.close(fd)
        self._started_at = asyncio.get_running_loop().time()

    async def wait(self) -> int:
        """The exit code, once the process has ended; negative for a signal."""
        assert self._process is not None
        return await self._process.wait()

    def stands(self) -> None:
        """It does what it is for: what happened before does not count."""
        if not self.has_stood:
            self.has_stood = True
            self._ends.clear()
        self.dying.clear()

    def note_end(self) -> None:
        """Counts an end of the process, which nobody asked for."""
        now = asyncio.get_running_loop().time()
        self._ends = [at for at in self._ends if now - at < _LATELY_S] + [now]
        if len(self._ends) >= (_ENDS_AFTER if self.has_stood else _ENDS_BEFORE_IT_STOOD):
            self.dying.set()

    def is_news(self) -> bool:
        """Whether it dies in a loop, and that was not told lately."""
        now = asyncio.get_running_loop().time()
        if not self.dying.is_set() or (self._told_at is not None and now - self._told_at < _LATELY_S):
            return False
        self._told_at = now
        return True

    def loop_in_words(self) -> str:
        """How often it ended lately: `3 times in 12 s`."""
        return f"{len(self._ends)} times in {max(1, round(asyncio.get_running_loop().time() - self._ends[0]))} s"

    def backoff(self) -> tuple[float, bool]:
        """Seconds to wait before the next start, longer with each failure in a row; and whether this is the first."""
        if asyncio.get_running_loop().time() - self._started_at > _STEADY_S:
            self._failures = 0
        self._failures += 1
        return BACKOFF_S[min(self._failures, len(BACKOFF_S)) - 1], self._failures == 1

    async def stop(self, timeout_s: float) -> None:
        """Asks the process to end, and kills it if it has not after `timeout_s`."""
        if self.pid is None:
            return
        self.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(timeout_s):
                await self.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """Ends the process now."""
        if self.pid is not None:
            self.signal(signal.SIGKILL)
            await self.wait()

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal; to one that has just ended, none."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def last_words(self, lines: int = 5) -> str:
        """The end of its log."""
        with suppress(OSError), self._log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _LAST_BYTES))
            text = "".join(one for one in log.read().decode(errors="replace") if one.isprintable() or one == "\n")
            return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])
        return ""

    def last_line(self) -> str:
        """The last line of its log, or of its last lines the one that says what is wrong; empty where it has none."""
        lines = self.last_words(20).splitlines()
        errors = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
        return (errors or lines or [""])[-1][:_MOST_CHARACTERS]


KILL_S = 5.0
"""How long children may take to end by themselves once the pipe is closed."""
_KEPT_LOG_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FailureAdvice:
    """What users are told of a child that ends: what that means, and what to do where it dies in a loop."""

    consequence: str
    remedy: str


class Supervisor:
    """The children of one process, tied to it by a pipe: `life_fd` is the end that they watch.

    `warn` tells the user something; `on_crash_loop` gets a child that dies in a loop, and the sentences that say so.
    """

    def __init__(self, logs: Path, warn: Callable[[str], None], on_crash_loop: Callable[[Child, str], None]) -> None:
        self._logs = logs
        self._warn = warn
        self._on_crash_loop = on_crash_loop
        self._children: list[Child] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._ending = False
        self.life_fd, self._parent_pipe = os.pipe()

    def child(self, name: str, make: Callable[[], Command]) -> Child:
        """A child that is not started yet; its output goes to `<name>.log`."""
        log = self._logs / f"{name}.log"
        if log.exists() and log.stat().st_size > _KEPT_LOG_BYTES:
            log.replace(log.with_suffix(".log.1"))
        child = Child(name, make, log)
        self._children.append(child)
        return child

    def supervise(self, child: Child, advice: FailureAdvice, *, started: bool = False) -> None:
        """Starts the child (unless it is `started`) and starts it again whenever it ends.

        The first of several failures in a row is told to the user, and a loop of them; of a child that never stood, as
        another start may still bring it up, only the loop.
        """
        self._tasks.append(asyncio.create_task(self._restart_forever(child, advice, started=started)))

    async def end_in_order(self, limits_s: Sequence[tuple[str, float]]) -> None:
        """Ends the children of each name in turn, those of one name (`worker`, `worker-...`) together.

        One that takes longer than its limit is killed.
        """
        self._ending = True
        for name, limit_s in limits_s:
            named = [child for child in self._children if child.name.partition("-")[0] == name]
            await asyncio.gather(*(child.stop(limit_s) for child in named))

    async def end_now(self) -> None:
        """Closes the pipe, which every child takes as the end, and kills what is still there a little later."""
        self._ending = True
        for task in self._tasks:
            task.cancel()
        with suppress(OSError):
            os.close(self._parent_pipe)
        with suppress(TimeoutError):
            async with asyncio.timeout(KILL_S):
                for child in self._children:
                    if child.pid is not None:
                        await child.wait()
        for child in self._children:
            await child.kill()

    async def _restart_forever(self, child: Child, advice: FailureAdvice, *, started: bool) -> None:
        while not self._ending:
            problem = None if started else await _try_start(child)
            started = False
            if problem is None:
                problem = f"ended with code {await child.wait()}"
            if self._ending:
                return
            child.note_end()
            delay_s, is_first = child.backoff()
            said, log = child.last_line(), self._logs / f"{child.name}.log"
            last = f"Its log ({log}) ends: {said}" if said else f"Its log is {log}."
            if child.is_news():
                told = f"{child.name} {problem}, {child.loop_in_words()}."
                self._on_crash_loop(child, f"{told}\n  {last}\n  What to do: {advice.remedy}")
            elif is_first and child.has_stood:
                self._warn(f"{child.name} {problem}. {advice.consequence} {last}")
            await asyncio.sleep(delay_s)


async def _try_start(child: Child) -> str | None:
    try:
        await child.start()
    except OSError as error:
        return f"cannot be started: {error.strerror}"
    return None
