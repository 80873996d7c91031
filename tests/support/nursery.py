"""The process that forks what `forks.py` starts: a script, of which only `forks.py` knows.

With spares, a fork that is a worker forks twice itself before it begins. Those wait until it starts a launcher and a
Celery child, which as interpreters import for seconds, and take over when its `subprocess` is asked for their module:
its children, with the same descriptors, arguments, environment, directory and session, from `main` on. One start each.
"""

import fcntl
import importlib
import inspect
import json
import os
import runpy
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from drumline._preload import without_collection

_DRUMLINE = "drumline.cli.main"
_PRELOADED = (
    "drumline_server.app.serve",
    "drumline_server.cli",
    "drumline_worker.agent.agent",
    "drumline_worker.agent.reports",
    "drumline_worker.cli",
    _DRUMLINE,
    # What these import no sooner than they use it.
    "anyio._backends._asyncio",
    "celery.app.amqp",
    "celery.backends.base",
    "celery.events",
    "celery.fixups.django",
    "celery.result",
    "httpcore2",
    "kombu.transport.redis",
    "psycopg",
    "uvicorn.lifespan.on",
    "uvicorn.loops.uvloop",
)
_LAUNCHER, _CELERY_CHILD = "drumline_worker.launcher.launcher", "drumline_worker.celery_child.celery_app"
_OF_WORKERS = (_LAUNCHER, _CELERY_CHILD, "celery.apps.worker", "celery.bin.worker")
_START = ["-P", "-m"]
"""How an agent starts them: `python -P -m MODULE ARGUMENTS`."""
_MOST_BYTES = 1 << 20
_MOST_FDS = 16


def main(link: socket.socket, programs: Sequence[str]) -> None:
    """Imports `programs`, or what `drumline` needs, and forks until the test's process is gone."""
    with without_collection():
        for name in programs or _PRELOADED:
            importlib.import_module(name)
    module = _serve(link)
    if programs:
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        sys.modules[module].main()


def _serve(link: socket.socket) -> str:
    """Returns in the forks only, ready for `main`: the module that has it."""
    while True:
        message, fds, _, _ = socket.recv_fds(link, _MOST_BYTES, _MOST_FDS)
        if not message:
            sys.exit()
        request = json.loads(message)
        if "reap" in request:
            _, status = os.waitpid(request["reap"], 0)
            link.send(str(os.waitstatus_to_exitcode(status)).encode())
            continue
        if request["spares"]:
            _warm_up()
        pid = os.fork()
        if pid == 0:
            link.close()
            _become(request, fds)
            return (_keep_spares() if request["spares"] else None) or _DRUMLINE
        for fd in fds:
            os.close(fd)
        link.send(str(pid).encode())


def _become(request: Mapping[str, Any], fds: Sequence[int]) -> None:
    """Makes this fork what an interpreter would be; `request["fds"]` are the numbers that `fds` get."""
    os.setsid()
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv[:] = request["arguments"]
    above = max(request["fds"]) + 1
    safe = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in fds]
    for fd in fds:
        os.close(fd)
    for fd, number in zip(safe, request["fds"], strict=True):
        os.dup2(fd, number)
        os.close(fd)


def _warm_up() -> None:
    """What launchers and Celery children import and do first, once for all. No thread is started by it."""
    if _LAUNCHER in sys.modules:
        return
    with without_collection():
        for name in _OF_WORKERS:
            importlib.import_module(name)
        importlib.import_module("drumline_worker.launcher.warm_up").warm_up()


def _keep_spares() -> str | None:
    """In a spare, once it is wanted: its module. In the agent, which has them now, None."""
    waiting: dict[str, tuple[int, socket.socket]] = {}
    for module in (_LAUNCHER, _CELERY_CHILD):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            _wait(theirs)
            return module
        theirs.close()
        waiting[module] = pid, ours
    _use(waiting)
    return None


def _wait(link: socket.socket) -> None:
    """Returns once this spare is wanted; it ends with its agent, of which it holds nothing meanwhile."""
    from drumline_worker.host.system import close_all_fds_but

    os.chdir("/")
    close_all_fds_but({link.fileno()})
    message, fds, _, _ = socket.recv_fds(link, _MOST_BYTES, _MOST_FDS)
    if not message:
        os._exit(0)
    link.close()
    _become(json.loads(message), fds)


def _use(waiting: dict[str, tuple[int, socket.socket]]) -> None:
    """Has `subprocess` take spares for their modules, where it would fork and exec."""
    popen: Any = subprocess.Popen  # Any: its inner methods have no types
    ordinary = popen._execute_child
    signature = inspect.signature(ordinary)

    def execute(process: Any, *arguments: Any) -> None:  # Any: as the standard library calls it
        asked = signature.bind(process, *arguments).arguments
        command = asked["args"]
        if list(command[1:3]) != _START or command[3] not in waiting:
            ordinary(process, *arguments)
            return
        assert asked["start_new_session"]
        assert asked["close_fds"]
        process.pid, link = waiting.pop(command[3])
        process._child_created = True
        standard = {0: asked["p2cread"], 1: asked["c2pwrite"], 2: asked["errwrite"]}
        fds = {number: fd for number, fd in standard.items() if fd != -1} | {fd: fd for fd in asked["pass_fds"]}
        named = {"arguments": command[3:], "environment": asked["env"], "directory": str(asked["cwd"])}
        with link:
            socket.send_fds(link, [json.dumps({**named, "fds": [*fds]}).encode()], [*fds.values()])
        process._close_pipe_fds(*(asked[each] for each in inspect.signature(process._close_pipe_fds).parameters))

    popen._execute_child = execute


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
