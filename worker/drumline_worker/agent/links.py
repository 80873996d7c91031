"""The agent's side of launcher and shims: it starts the launcher, asks it for shims, and talks to each of them."""

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from drumline_worker.agent.api import Backoff
from drumline_worker.host.messages import (
    TRY_S,
    Decoder,
    DevicesListed,
    DeviceTried,
    FromLauncher,
    FromShim,
    Gone,
    Launched,
    LaunchFailed,
    ListDevices,
    News,
    Ready,
    Reply,
    Request,
    Start,
    TryDevice,
    Unready,
    Wish,
    encode_payload,
)
from drumline_worker.host.rundir import RunDirectory

_LOG = logging.getLogger(__name__)
_READY_S = 120.0
"""To import JAX takes seconds, from a cold disk on a busy host many of them; one that hangs is told of by then."""
_LIST_S = 120.0
"""A driver that is opened for the first time after a boot is slow; one that hangs never answers."""
_START_S = 30.0
"""A fork takes milliseconds, and a host that swaps some seconds. A shim that begins later is looked after all the same:
its run directory decides whether its start counts."""
_STOP_S = 5.0
_HOPELESS = 2
"""Launchers in a row that never were ready: the next will not be either, as nothing of this host has changed."""


class LaunchError(Exception):
    """The launcher did not answer as it should: whether there is a shim, its run directory knows."""


class LauncherClient:
    """Holds one launcher. Everything that waits for a dead one fails with LaunchError."""

    def __init__(
        self, home: Path, parent_fd: int | None, on_hopeless: Callable[[str], None], *, is_simulated: bool = False
    ) -> None:
        self._home = home
        self._is_simulated = is_simulated
        """Whether CPU devices stand for the devices of this host, of whatever platform."""
        self._parent_fd = parent_fd
        self._on_hopeless = on_hopeless
        self._unready = 0
        """Launchers in a row that ended before they were ready."""
        self._flaw = ""
        """Why the last of them did."""
        self._settled = asyncio.Event()
        """A launcher is ready, or it is hopeless."""
        self._writer: asyncio.StreamWriter | None = None
        self._ready = asyncio.Event()
        self._starting: dict[str, asyncio.Future[Launched]] = {}
        self._gone: dict[str, asyncio.Event] = {}
        self._listing: asyncio.Future[DevicesListed] | None = None
        self._trying: dict[str, asyncio.Future[str | None]] = {}

    async def run(self) -> None:
        """Keeps a launcher alive until cancelled; tells `on_hopeless` why one after the other does not come up."""
        backoff = Backoff()
        while True:
            self._flaw = ""
            if await self._serve_one():
                backoff.reset()
                self._unready = 0
            else:
                self._unready += 1
            _LOG.warning("the launcher died; starting another")
            if self._unready >= _HOPELESS:
                self._settled.set()
            if self._unready == _HOPELESS:
                self._on_hopeless(self.flaw)
            await asyncio.sleep(backoff.next_s())

    @property
    def flaw(self) -> str:
        """Why launchers do not come up; empty while they do."""
        if self._unready < _HOPELESS:
            return ""
        return f"the launcher died {self._unready} times while it started: {self._flaw}"

    async def list_devices(self, cpu_devices: int) -> DevicesListed:
        """The devices of this host, and why not others.

        Raises LaunchError when a device driver hangs or ends the process that lists them.
        """
        await self.until_ready()
        self._listing = asyncio.get_running_loop().create_future()
        self._gone["list_devices"] = asyncio.Event()
        self._send(ListDevices(cpu_devices=cpu_devices))
        try:
            async with asyncio.timeout(_LIST_S):
                listed = await self._listing
                await self._gone["list_devices"].wait()
        except TimeoutError:
            raise LaunchError(f"listing the devices gave no answer in {_LIST_S:.0f} s") from None
        return listed

    async def start(self, member: str, directory: Path) -> Launched:
        """Forks a shim. Raises LaunchError."""
        await self.until_ready()
        future: asyncio.Future[Launched] = asyncio.get_running_loop().create_future()
        self._starting[member] = future
        self._gone[member] = asyncio.Event()
        self._send(Start(member=member, directory=str(directory)))
        try:
            async with asyncio.timeout(_START_S):
                return await future
        except TimeoutError:
            raise LaunchError(f"the launcher gave no answer in {_START_S:.0f} s") from None
        finally:
            del self._starting[member]

    async def try_device(self, platform: str, index: int) -> str | None:
        """What is wrong with a device, found by a program on it; None if nothing is."""
        await self.until_ready()
        platform = "cpu" if self._is_simulated else platform
        name = f"try {platform}:{index}"
        self._trying[name] = asyncio.get_running_loop().create_future()
        try:
            self._send(TryDevice(name=name, platform=platform, index=index))
            async with asyncio.timeout(TRY_S + _STOP_S):
                return await self._trying[name]
        except TimeoutError:
            return f"A program on it gave no answer in {TRY_S} s."
        except LaunchError as error:
            return str(error)
        finally:
            del self._trying[name]

    async def wait_gone(self, member: str, timeout_s: float) -> bool:
        """Whether the launcher has proof, in time, that the shim and all it started are dead."""
        gone = self._gone.get(member)
        if gone is None:
            return False
        try:
            async with asyncio.timeout(timeout_s):
                await gone.wait()
        except TimeoutError:
            return False
        return True

    def forget(self, member: str) -> None:
        """The member is over."""
        self._gone.pop(member, None)

    async def until_ready(self) -> None:
        """Waits until a launcher has imported everything. Raises LaunchError when that takes too long or fails."""
        try:
            async with asyncio.timeout(_READY_S):
                await self._settled.wait()
        except TimeoutError:
            raise LaunchError(f"the launcher was not ready in {_READY_S:.0f} s") from None
        if not self._ready.is_set():
            raise LaunchError(self.flaw or "the launcher died")

    async def _serve_one(self) -> bool:
        """One launcher's life; whether it ever was ready."""
        ours, theirs = socket.socketpair()
        process = await self._spawn(theirs)
        theirs.close()  # or our end would never read the end of the stream that its death is
        reader, self._writer = await asyncio.open_connection(sock=ours)
        try:
            await self._read(reader)
        finally:
            was_ready = self._ready.is_set()
            self._abandon()
            self._writer.close()
            await _stop(process)
            self._flaw = self._flaw or _describe_end(process.returncode)
        return was_ready

    async def _spawn(self, link: socket.socket) -> asyncio.subprocess.Process:
        fds = [link.fileno()] + ([self._parent_fd] if self._parent_fd is not None else [])
        arguments = ["--link-fd", str(link.fileno())]
        if self._parent_fd is not None:
            arguments += ["--parent-fd", str(self._parent_fd)]
        return await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "drumline_worker.launcher.launcher", *arguments,
            env=launcher_environment(self._home), cwd=self._home, pass_fds=fds, stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip

    async def _read(self, reader: asyncio.StreamReader) -> None:
        decoder = Decoder()
        with contextlib.suppress(ConnectionError):  # it died with something of ours unread
            while raw := await reader.read(65_536):
                for payload in decoder.feed(raw):
                    self._handle_reply(FromLauncher.validate_json(payload))

    def _handle_reply(self, reply: Reply) -> None:
        if isinstance(reply, Ready):
            self._unready = 0
            self._ready.set()
            self._settled.set()
        elif isinstance(reply, Unready):
            self._flaw = reply.message
        elif isinstance(reply, Launched):
            self._resolve_start(reply.member, reply)
        elif isinstance(reply, LaunchFailed):
            self._resolve_start(reply.member, LaunchError(reply.message))
        elif isinstance(reply, DevicesListed):
            if self._listing is not None and not self._listing.done():
                self._listing.set_result(reply)
        elif isinstance(reply, DeviceTried):
            self._resolve_try(reply.name, reply.flaw)
        else:
            self._handle_gone(reply)

    def _handle_gone(self, reply: Gone) -> None:
        if reply.member in self._gone:
            self._gone[reply.member].set()
        self._resolve_try(reply.member, f"A program on it died with exit code {reply.exit_code}.")
        if reply.member == "list_devices" and self._listing is not None and not self._listing.done():
            self._listing.set_exception(LaunchError(f"listing the devices died with exit code {reply.exit_code}"))

    def _resolve_start(self, member: str, outcome: Launched | LaunchError) -> None:
        future = self._starting.get(member)
        if future is None or future.done():
            return
        if isinstance(outcome, LaunchError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    def _resolve_try(self, name: str, flaw: str | None) -> None:
        future = self._trying.get(name)
        if future is not None and not future.done():
            future.set_result(flaw)

    def _abandon(self) -> None:
        """Shims of a dead launcher keep running; what it alone could have proven stays unproven."""
        self._ready.clear()
        self._settled.clear()
        self._gone.clear()
        for member in list(self._starting):
            self._resolve_start(member, LaunchError("the launcher died"))
        for name in self._trying:
            self._resolve_try(name, "The launcher died while a program was tried on it.")
        if self._listing is not None and not self._listing.done():
            self._listing.set_exception(LaunchError("the launcher died"))

    def _send(self, request: Request) -> None:
        if self._writer is None or self._writer.is_closing():
            raise LaunchError("the launcher died")
        self._writer.write(encode_payload(request.model_dump_json().encode()))


def _describe_end(code: int | None) -> str:
    if code is not None and code < 0:
        return f"ended by signal {-code}"
    return f"exit code {code}"


async def _stop(process: asyncio.subprocess.Process) -> None:
    try:
        async with asyncio.timeout(_STOP_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


class ShimLink:
    """Sends wishes, yields news until the shim ends."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, directory: RunDirectory) -> "ShimLink":
        """Raises OSError when no shim listens."""
        link: socket.socket = directory.connect()
        return cls(*await asyncio.open_unix_connection(sock=link))

    def send(self, message: Wish) -> None:
        """Sends a wish; a shim that is gone needs none."""
        if not self._writer.is_closing():
            self._writer.write(encode_payload(message.model_dump_json().encode()))

    async def news(self) -> AsyncIterator[News]:
        """Messages of the shim; ends when the shim does."""
        decoder = Decoder()
        try:
            while raw := await self._reader.read(65_536):
                for payload in decoder.feed(raw):
                    yield FromShim.validate_json(payload)
        except ConnectionError:
            return

    def close(self) -> None:
        """Hangs up; the shim keeps running."""
        self._writer.close()


_INHERITED = (
    "PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "TPU_VISIBLE_DEVICES",
)  # fmt: skip


def child_environment() -> dict[str, str]:
    """For every child: no credential, no setting of ours."""
    return {name: os.environ[name] for name in _INHERITED if name in os.environ}


def launcher_environment(home: Path) -> dict[str, str]:
    """For the launcher, whose environment a program can read in /proc/self/environ.

    OpenBLAS would start its threads on import, and a fork of a process with threads is not whole.
    """
    return {
        "LANG": "C.UTF-8",
        **child_environment(),
        "HOME": str(home),
        "TMPDIR": str(home),
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONNOUSERSITE": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
