"""A real server on a real port, in a thread of the test, with the core behind it in the test's hands."""

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from drumline._transport import trusted_by
from drumline.contracts import api
from drumline_server.app.application import Application, create_app, prepare
from drumline_server.app.local import address, listen, read_admin_token
from drumline_server.app.serve import ParentPipes, Server, configure
from drumline_server.base.settings import Settings
from drumline_server.services import access
from drumline_server.storage.database import Database
from support.clock import FakeClock
from support.core import Core
from support.layer import Layer
from support.processes import wait_until

START_S = 30.0
_ANSWER_S = 120.0
"""For an answer, of which none tells how long it may take: tests that do hold it against something. A sweep of 10 000
runs takes 5 s of a processor, which a busy machine gives it in a minute."""
_DESCRIPTION = Path(__file__).resolve().parents[2] / "frontend" / "openapi.json"


@dataclass
class EdgeServer:
    """A running server: `url`, its application, and a `Core` on the same database and clock."""

    url: str
    app: Application
    core: Core
    data_dir: Path
    layer: Layer
    """Stands before the application, if it was asked for."""
    clients: list[httpx2.Client] = field(default_factory=list)

    @property
    def admin_token(self) -> str:
        """The bootstrap token."""
        token = read_admin_token(self.data_dir)
        assert token is not None
        return token

    def client(self, token: str | None = None, **headers: str) -> httpx2.Client:
        """An HTTP client; with a token it sends it as bearer."""
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        client = httpx2.Client(base_url=self.url, headers=headers, timeout=_ANSWER_S, verify=trusted_by(self.url))
        self.clients.append(client)
        return client

    @property
    def admin(self) -> httpx2.Client:
        """A client with the bootstrap token."""
        return self.client(self.admin_token)

    def token(self, role: str = "submitter", project_id: str | None = None, **changes: Any) -> str:
        """A new API token of a project."""
        request = api.TokenCreate.model_validate({"name": f"a {role}", "role": role, **changes})
        created = self.core.write(
            lambda session: access.create_token(
                session,
                request,
                project_id=project_id or self.core.project_id,
                by=api.PrincipalRef(name="test"),
                now=self.core.clock.now(),
            )
        )
        return created.secret.get_secret_value()

    def worker_token(self, host_id: str) -> str:
        """A new token of a host's worker."""
        return self.core.write(
            lambda session: access.issue_worker_token(
                session,
                project_id=self.core.project_id,
                host_id=host_id,
                host_name="alpha",
                now=self.core.clock.now(),
            )
        )


@dataclass(frozen=True)
class Setup:
    """What a test server is beside its settings."""

    clock: FakeClock = field(default_factory=FakeClock)
    core: Core | None = None
    """Of a server that starts again on its database."""
    port: int = 0
    layered: bool = False
    """Whether requests pass its layer."""


def described_paths() -> dict[str, Any]:  # Any: JSON
    """The operations of each path, from the file that `make check` compares with the code: making it takes a second."""
    paths: dict[str, Any] = json.loads(_DESCRIPTION.read_text())["paths"]
    return paths


@contextlib.contextmanager
def edge_server(
    database_url: str, data_dir: Path, setup: Setup | None = None, /, **settings: Any
) -> Iterator[EdgeServer]:
    """Serves until the block ends. The loops do not run: the core does what a test tells it."""
    setup = setup or Setup()
    data_dir.mkdir(mode=0o700, exist_ok=True)
    chosen = Settings.model_validate({"data_dir": data_dir, "database_url": database_url, "loops": False, **settings})
    prepare(chosen)  # while the directory holds all bundles that the database knows: none
    core = setup.core or _new_core(database_url, setup.clock)
    app = create_app(chosen, clock=core.clock)
    listener = listen("127.0.0.1", setup.port)
    config = configure(chosen, app)
    config.load()
    layer = Layer(config.loaded_app)
    if setup.layered:
        config.loaded_app = layer
    server = Server(config, listener, ParentPipes())
    thread = threading.Thread(target=server.run, args=([listener],), name="edge-server")
    thread.start()
    running = None
    try:
        wait_until(lambda: server.started or not thread.is_alive(), timeout_s=START_S, what="the server started")
        assert server.started
        core.database = app.parts.database
        running = EdgeServer(address(listener), app, core, data_dir, layer)
        yield running
    finally:
        for client in running.clients if running else ():
            client.close()
        server.should_exit = True
        thread.join(START_S)


def _new_core(database_url: str, clock: FakeClock) -> Core:
    first = Database(database_url, pool_size=2)
    try:
        return Core(first, clock)
    finally:
        first.close()
