"""Runs the API process: binds the port, serves until told to stop, and watches whether its parent lives."""

import asyncio
import gc
import json
import logging
import os
import resource
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass

import uvicorn

from drumline._log_lines import set_up_logging
from drumline_server.app.application import Application, create_app, prepare
from drumline_server.app.local import BACKLOG, address, listen
from drumline_server.base.errors import BrokerRefusedError, StartError
from drumline_server.base.settings import Settings
from drumline_server.http.connections import bound_protocol
from drumline_server.storage.notifications import require_safe

_SHUTDOWN_S = 10
"""How long requests in progress may take once the server stops."""
_DESCRIPTORS = 200
"""Files that may be open beside connections and the database's: blobs, logs, the broker, pipes."""
_TURN_S = 0.001
"""How long a thread keeps the interpreter while others want it: every answer of the database waits for that."""


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ParentPipes:
    """Descriptors that tie the process to the one that started it, each or none."""

    parent_fd: int | None = None
    """At its end of file the parent is gone, and so must this process be."""
    ready_fd: int | None = None
    """Gets one line of JSON with the server's address once it answers."""
    listen_fd: int | None = None
    """A socket that listens already, and stays when this process goes."""


def serve(settings: Settings, parent_pipes: ParentPipes) -> None:
    """Serves until SIGTERM, SIGINT or the parent's end. Raises StartError."""
    os.umask(0o077)
    set_up_logging(settings.log_format, "%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    try:
        prepare(settings)
        require_safe(settings.broker)
        listener = _listener(settings, parent_pipes)
    except BrokerRefusedError as error:
        raise StartError(f"DRUMLINE_BROKER_URL: {error}") from error
    settings = _fit_descriptors(settings)
    server = Server(configure(settings, create_app(settings)), listener, parent_pipes)
    share_interpreter()
    server.run(sockets=[listener])


def share_interpreter() -> None:
    """Has threads hand the interpreter on soon; what was made so far is no more looked at by the garbage collection.

    A full collection holds the interpreter throughout, and what a server is made of takes it 0.2 s.
    """
    sys.setswitchinterval(_TURN_S)
    gc.collect()
    gc.freeze()


def _fit_descriptors(settings: Settings) -> Settings:
    """The settings with no more connections than the process can have files open, asking for more files first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    others = _DESCRIPTORS + settings.database_pool_size
    wanted = settings.connections + settings.connections_kept + others
    if soft < wanted:
        with suppress(ValueError, OSError):  # what the system does not grant is done without
            soft_wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft_wanted, hard))
            soft = soft_wanted
    room = max(16, soft - settings.connections_kept - others)
    if room >= settings.connections:
        return settings
    log.warning("%d files may be open (ulimit -n): at most %d connections, not %d", soft, room, settings.connections)
    return settings.model_copy(update={"connections": room})


def _listener(settings: Settings, parent_pipes: ParentPipes) -> socket.socket:
    if parent_pipes.listen_fd is not None:
        return socket.socket(fileno=parent_pipes.listen_fd)
    return listen(settings.host, settings.port)


def configure(settings: Settings, app: Application) -> uvicorn.Config:
    """How uvicorn serves `app`."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        http=bound_protocol(app.connections),
        proxy_headers=False,
        timeout_keep_alive=settings.keep_alive_s,
        backlog=BACKLOG,
        timeout_graceful_shutdown=_SHUTDOWN_S,
        ws="none",
    )


class Server(uvicorn.Server):
    """uvicorn that ends open streams when it stops, says when it is ready, and stops with its parent."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket, parent_pipes: ParentPipes) -> None:
        super().__init__(config)
        self._listener = listener
        self._parent_pipes = parent_pipes

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Says that it is ready once it listens."""
        await super().startup(sockets)
        if self._parent_pipes.parent_fd is not None:
            asyncio.get_running_loop().add_reader(self._parent_pipes.parent_fd, self._stop_with_parent)
        if self._parent_pipes.ready_fd is not None:
            with os.fdopen(self._parent_pipes.ready_fd, "w") as ready:
                ready.write(json.dumps({"url": address(self._listener)}) + "\n")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends the open streams first: they would end by themselves never."""
        assert isinstance(self.config.app, Application)
        self.config.app.live.close()
        await super().shutdown(sockets)

    def _stop_with_parent(self) -> None:
        """Nobody waits for the answers of a server whose parent is gone."""
        assert self._parent_pipes.parent_fd is not None
        asyncio.get_running_loop().remove_reader(self._parent_pipes.parent_fd)
        self.should_exit = self.force_exit = True
