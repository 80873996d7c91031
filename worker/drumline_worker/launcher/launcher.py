"""The launcher: imports everything a runner needs, starts no backend, and forks shims from then on.

`python -m drumline_worker.launcher.launcher --link-fd N [--parent-fd N]`; the agent execs it with an allow-listed
environment.
It has one thread, so that its forks are whole. Orphans of a shim that was killed become its children and are ended.
"""

import contextlib
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import click
from pydantic import ValidationError

from drumline_worker.host.messages import (
    TRY_S,
    Decoder,
    DevicesListed,
    DeviceTried,
    ForLauncher,
    Gone,
    Launched,
    LaunchFailed,
    ListDevices,
    Ready,
    Reply,
    Start,
    TryDevice,
    Unready,
    encode_payload,
)
from drumline_worker.host.rundir import RunDirectory
from drumline_worker.host.system import (
    become_subreaper,
    children_of,
    close_all_fds_but,
    kill_quietly,
    reap,
    set_name,
)
from drumline_worker.launcher.warm_up import warm_up
from drumline_worker.shim.runner_process import Lives
from drumline_worker.shim.shim import run_shim

_MOST_CHARACTERS = 1_000
"""Of an error's message: those of XLA may fill pages."""


@dataclass(slots=True)
class _Leaving:
    """A child that is dead, while processes that may have been its own are not."""

    name: str
    status: int
    strays: set[int] = field(default_factory=set)


class Launcher:
    """Serves one agent; ends when the agent hangs up. Shims live on."""

    def __init__(self, link: socket.socket, parent_fd: int | None) -> None:
        self._link = link
        self._parent_fd = parent_fd
        self._decoder = Decoder()
        self._children: dict[int, str] = {}
        """What each child is: a member's id, or the name of a probe."""
        self._leaving: list[_Leaving] = []

    def serve(self) -> None:
        """Until the agent is gone."""
        wakeup = _wake_on_child()
        with selectors.DefaultSelector() as selector:
            selector.register(self._link, selectors.EVENT_READ)
            selector.register(wakeup, selectors.EVENT_READ)
            self._reply(Ready(pid=os.getpid()))
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if wakeup in ready:
                    wakeup.recv(4_096)
                    self._reap()
                if self._link in ready and not self._hear():
                    signal.set_wakeup_fd(-1)  # its other end goes now, and a child may still die
                    return

    def _hear(self) -> bool:
        raw = self._link.recv(65_536)
        for payload in self._decoder.feed(raw):
            request = ForLauncher.validate_json(payload)
            if isinstance(request, Start):
                self._start(request)
            elif isinstance(request, ListDevices):
                self._list_devices(request)
            else:
                self._try(request)
        return bool(raw)

    def _start(self, request: Start) -> None:
        directory = RunDirectory(Path(request.directory))
        try:
            listener = directory.listen()
        except OSError as error:
            self._reply(LaunchFailed(member=request.member, message=f"no socket in {directory.path}: {error}"))
            return

        def live() -> None:
            from drumline_worker.runner.runner import run_member  # imported by `warm_up`, once for all forks
            from drumline_worker.runner.step_traces import send_left

            run_shim(directory, listener, self._parent_fd, Lives(run_member, send_left))

        pid = self._fork(live, {listener.fileno()})
        # The shim holds it; kept here too, agents would still connect when that shim is dead.
        listener.close()
        self._children[pid] = request.member
        self._reply(Launched(member=request.member, pid=pid))

    def _list_devices(self, request: ListDevices) -> None:
        """The child answers by itself: the launcher does not wait."""
        link = self._link

        def answer() -> None:
            from drumline_worker.launcher.devices import list_devices

            devices, flaws = list_devices(request.cpu_devices)
            link.sendall(_frames(DevicesListed(devices=tuple(devices), flaws=flaws)))

        self._children[self._fork(answer, {link.fileno()})] = "list_devices"

    def _try(self, request: TryDevice) -> None:
        """The child answers by itself, or is ended by an alarm that a hanging driver cannot hold up in user space."""
        link = self._link

        def answer() -> None:
            from drumline_worker.launcher.devices import try_device

            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(TRY_S)
            link.sendall(_frames(DeviceTried(name=request.name, flaw=try_device(request.platform, request.index))))

        self._children[self._fork(answer, {link.fileno()})] = request.name

    def _fork(self, work: Callable[[], None], keep: set[int]) -> int:
        pid = os.fork()
        if pid == 0:
            parent = {self._parent_fd} if self._parent_fd is not None else set()
            _work_and_exit(work, keep | parent)
        return pid

    def _reap(self) -> None:
        """Reaps the dead, and kills what a killed shim left behind; once nothing of it is left the member is gone.

        Nothing is waited for: a stray that hangs in the kernel keeps its own member from being gone, and nothing else.
        """
        reap(self._record_death)
        known = self._children.keys() | {pid for leaving in self._leaving for pid in leaving.strays}
        # Whom we did not fork is the orphan of a shim that was killed; of which one, nobody can tell any more.
        for pid in set(children_of(os.getpid())) - known:
            kill_quietly(pid, signal.SIGKILL)
            for leaving in self._leaving:
                leaving.strays.add(pid)
        for leaving in [leaving for leaving in self._leaving if not leaving.strays]:
            self._leaving.remove(leaving)
            self._reply(Gone(member=leaving.name, exit_code=os.waitstatus_to_exitcode(leaving.status)))

    def _record_death(self, pid: int, status: int) -> None:
        name = self._children.pop(pid, None)
        if name is not None:
            self._leaving.append(_Leaving(name, status))
        for leaving in self._leaving:
            leaving.strays.discard(pid)

    def _reply(self, reply: Reply) -> None:
        try:
            self._link.sendall(_frames(reply))
        except OSError:
            return  # the agent is gone; the next read says so


def _frames(reply: Reply) -> bytes:
    return encode_payload(reply.model_dump_json().encode())


def _work_and_exit(work: Callable[[], None], keep: set[int]) -> NoReturn:
    """A child's life: it never returns into the launcher's loop."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        close_all_fds_but(keep)
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - the last line of defence of this process
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)


def _wake_on_child() -> socket.socket:
    ours, handlers = socket.socketpair()
    ours.setblocking(False)
    handlers.setblocking(False)
    signal.set_wakeup_fd(handlers.detach(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return ours


@click.command(add_help_option=False)
@click.option("--link-fd", type=int, required=True)
@click.option("--parent-fd", type=int)
def main(link_fd: int, parent_fd: int | None) -> None:
    """Serves the agent at the other end of the socket `link_fd`."""
    # Signals to the whole process group must not end it: it ends when its agent hangs up.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.umask(0o077)
    become_subreaper()
    set_name("drumline-launch")
    link = socket.socket(fileno=link_fd)
    try:
        warm_up()
    except Exception as error:
        with contextlib.suppress(OSError):
            link.sendall(_frames(Unready(message=f"{type(error).__name__}: {error}"[:_MOST_CHARACTERS])))
        raise
    try:
        Launcher(link, parent_fd).serve()
    except ValidationError as error:
        raise SystemExit(f"drumline launcher: the agent sent nonsense: {error}") from None


if __name__ == "__main__":
    main()
