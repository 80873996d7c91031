"""Makes the application: every part is created here once and handed down. Describes the API.

A new server gets its first project and its first admin token, so that it can be used, and by nobody else.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from sqlalchemy.orm import Session

from drumline.contracts.api import RunEvent, StreamHint
from drumline.contracts.base import new_id
from drumline.contracts.problems import PROBLEM_MEDIA_TYPE, Problem
from drumline_server.app import local
from drumline_server.base import callers
from drumline_server.base.callers import WorkerPrincipal, cookie_name
from drumline_server.base.errors import DatabaseUnavailableError
from drumline_server.base.settings import VERSION, Clock, Settings, SystemClock
from drumline_server.http import errors
from drumline_server.http.connections import ConnectionLimits, Connections, is_crowded
from drumline_server.http.dependencies import API
from drumline_server.http.layers import Compression, Dashboard, Gate
from drumline_server.http.limits import BodyCap, LoginLimiter, LoginTurns, Pace, Shares
from drumline_server.http.request_context import AppState, Proxies, RequestContext
from drumline_server.http.routes import curves, fleet, identity, jobs, records, runs
from drumline_server.lifecycle.heartbeat import renew_idle
from drumline_server.live.hub import Hub
from drumline_server.scheduling.leadership import keep_presence
from drumline_server.scheduling.loops import start_loops
from drumline_server.services.bundle_reading import Reading
from drumline_server.services.identity import (
    SECOND,
    Authentication,
    TokenCache,
    principals_of_tokens,
    workers_of_tokens,
)
from drumline_server.services.overview import Figures
from drumline_server.services.submit import submit_all
from drumline_server.storage import history, tokens
from drumline_server.storage.blobs import open_store, require_own_store
from drumline_server.storage.database import Database, migrate, require_current
from drumline_server.storage.models import Project, Token
from drumline_server.storage.notifications import Notifier, Publisher
from drumline_server.storage.requests import BatchingExecutor
from drumline_server.telemetry.log_search import LogSearches

DEFAULT_PROJECT = "default"
_ADMIN_TOKEN_S = 90 * 86_400
_RENEWED_BEFORE_US = 30 * 86_400 * SECOND
_BEYOND_ROUTES: tuple[type[BaseModel], ...] = (Problem, RunEvent, StreamHint)
"""Models that no route answers with by itself: errors, and what the stream carries."""
_SCHEMA_REF = {"$ref": "#/components/schemas/Problem"}


def describe(app: FastAPI) -> dict[str, Any]:  # Any: OpenAPI is a document, not a type of ours
    """The OpenAPI document of `app`; every error is a Problem."""
    document = get_openapi(title="Drumline", version=VERSION, routes=app.routes, separate_input_output_schemas=True)
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for model in _BEYOND_ROUTES:
        schema = model.model_json_schema(mode="serialization", ref_template="#/components/schemas/{model}")
        schemas.update(schema.pop("$defs", {}))
        schemas[model.__name__] = schema
    components["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer", "description": "A token: drm_pat_... or drm_wrk_..."},
        "session": {"type": "apiKey", "in": "cookie", "name": "drumline"},
    }
    document["security"] = [{"bearer": []}, {"session": []}]
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = {
                "description": "An error, told in words and with a code.",
                "content": {PROBLEM_MEDIA_TYPE: {"schema": _SCHEMA_REF}},
            }
    return document


LOGIN_BODY_BYTES = 4096
"""Of the one request that is read before anybody has said who it is."""


_START_TRIES, _START_AGAIN_S = 10, 0.2


class Application(FastAPI):
    """The server as an ASGI application. What it opens, it opens when it starts and closes when it stops.

    `connections` and `live` are there before: the HTTP server counts the former, and ends the latter before it stops.
    """

    parts: AppState
    """From the start on."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        super().__init__(
            title="Drumline",
            openapi_url=None,
            docs_url=None,
            redoc_url=None,
            lifespan=_lifespan,
            redirect_slashes=False,
        )
        self.settings = settings
        self.clock = clock
        self.connections = Connections(
            ConnectionLimits(
                settings.connections, settings.connections_kept, settings.head_timeout_s, settings.reader_stall_s
            )
        )
        self.live = Hub(settings)


def create_app(settings: Settings, *, clock: Clock | None = None) -> Application:
    """The server with its routes and layers."""
    app = Application(settings, clock or SystemClock())
    errors.install(app)
    _add_routes(app)
    app.router.default = Dashboard(settings.static_dir)
    _add_middleware(app)
    return app


def _add_routes(app: Application) -> None:
    """Routes are looked through in this order: those that every run and host asks for again and again come first."""
    for router in (
        fleet.workers_router,
        fleet.artifacts_router,
        runs.router,
        curves.stream_router,
        records.router,
        curves.router,
        jobs.bundles_router,
        identity.router,
        jobs.router,
        jobs.batches_router,
        runs.plans_router,
        fleet.router,
        curves.ledger_router,
        runs.lists_router,
        identity.webhooks_router,
        identity.health,
    ):
        app.router.routes.extend(router.routes)


def _add_middleware(app: Application) -> None:
    """The layers around every request; the last one added is the outermost."""
    settings = app.settings
    app.add_middleware(Compression)
    app.add_middleware(LoginTurns, path=f"{API}/sessions")
    app.add_middleware(
        BodyCap, limit_of=lambda path: _body_limit(settings, path), pace_of=lambda path: _body_pace(settings, path)
    )
    app.add_middleware(
        Gate,
        hosts=settings.allowed_hosts,
        origins=settings.allowed_origins,
        cookie=cookie_name(secure=settings.behind_proxy),
        tls=settings.behind_proxy,
        is_crowded=is_crowded,
    )
    app.add_middleware(
        RequestContext,
        find_state=lambda: app.parts,
        proxies=Proxies(settings.proxy_addresses),
        tls=settings.behind_proxy,
    )


def _body_pace(settings: Settings, path: str) -> Pace:
    if _takes_bundle(path) or _takes_artifact(path):
        return Pace(settings.upload_idle_s, settings.upload_bytes_per_s, settings.upload_window_s)
    return Pace(settings.body_timeout_s)


def _takes_bundle(path: str) -> bool:
    return path == f"{API}/bundles" or (path.startswith(f"{API}/bundles/") and path.endswith("/upload"))


def _takes_artifact(path: str) -> bool:
    return path.startswith(f"{API}/worker/members/") and "/artifacts/" in path


def _body_limit(settings: Settings, path: str) -> int:
    if path == f"{API}/sessions":
        return LOGIN_BODY_BYTES
    if _takes_bundle(path):
        return settings.bundle_bytes
    if _takes_artifact(path):
        return settings.artifact_bytes
    if path == f"{API}/runs:batch":
        return settings.batch_body_bytes
    telemetry = path.startswith(f"{API}/worker/members/") and path.endswith("/events")
    return settings.worker_body_bytes if telemetry else settings.json_body_bytes


@asynccontextmanager
async def _lifespan(app: Application) -> AsyncIterator[None]:
    settings, clock = app.settings, app.clock
    await asyncio.to_thread(prepare, settings)
    database = Database(settings.url, pool_size=settings.database_pool_size)
    try:
        await _make_usable(database, settings, clock)
        parts = app.parts = _make_parts(app, database)
        staying = keep_presence(database, clock, takeover_s=settings.times.takeover_s)
        async with _following(app.live, database), staying, _ending(app), _looping(parts):
            yield
    finally:
        await asyncio.to_thread(database.close)


def prepare(settings: Settings) -> None:
    """Sees to the data directory and to the tables; of a database that others share, only checks them.

    Raises StartError.
    """
    local.prepare(settings.data_dir)
    if settings.url.startswith("sqlite"):
        with local.hold_lock(settings.data_dir, "migrate.lock"):
            migrate(settings.url)
    else:
        require_current(settings.url)
    require_own_store(settings.url, open_store(settings), now=SystemClock().now())


async def _make_usable(database: Database, settings: Settings, clock: Clock) -> None:
    """Sees to the default project and an admin token in the data directory. Raises DatabaseUnavailableError.

    SQLite says "locked" at once, whatever time it was told to wait, while another process closes the file or brings it
    into WAL mode: one that is refused here for its data directory does just that.
    """
    for tries_left in reversed(range(_START_TRIES)):
        try:
            return await database.write(lambda session: ensure_admin_token(session, settings.data_dir, now=clock.now()))
        except DatabaseUnavailableError:
            if not tries_left:
                raise
            await asyncio.sleep(_START_AGAIN_S)
    return None


def _make_parts(app: Application, database: Database) -> AppState:
    """The parts of the server. What is asked often shares transactions: who asks, submissions, idle heartbeats."""
    settings, clock = app.settings, app.clock
    people: BatchingExecutor[str, Authentication] = BatchingExecutor(
        database.read, lambda *asked: principals_of_tokens(*asked, now=clock.now())
    )
    workers: BatchingExecutor[str, WorkerPrincipal] = BatchingExecutor(
        database.read, lambda *asked: workers_of_tokens(*asked, now=clock.now())
    )
    return AppState(
        settings=settings,
        clock=clock,
        database=database,
        blobs=open_store(settings),
        reading=Reading(),
        log_searches=LogSearches(),
        live=app.live,
        connections=app.connections,
        shares=Shares(
            settings.requests_per_token,
            reads=settings.reads_per_token,
            uploads=settings.uploads_per_token,
            large=settings.large_answers_per_token,
            exports=settings.exports,
        ),
        logins=LoginLimiter(settings.logins_per_minute),
        figures=Figures(app.clock.now()),
        people=TokenCache(people, database.commit_news, clock),
        workers=TokenCache(workers, database.commit_news, clock),
        submissions=BatchingExecutor(
            database.write, lambda *asked: submit_all(*asked, most_waiting=settings.waiting_runs, now=clock.now())
        ),
        idle_heartbeats=BatchingExecutor(database.write, lambda *asked: renew_idle(*asked, now=clock.now())),
        # every process notifies of what it has committed itself, whichever runs the loops
        notifier=None if settings.broker is None else Notifier(Publisher(settings.broker), database.commit_news),
    )


@asynccontextmanager
async def _following(hub: Hub, database: Database) -> AsyncIterator[None]:
    task = asyncio.create_task(hub.run(database), name="live")
    try:
        yield
    finally:
        hub.close()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def _ending(app: Application) -> AsyncIterator[None]:
    """Ends the parts that have a thread or processes of their own; the database goes last."""
    try:
        yield
    finally:
        await app.parts.reading.close()
        if app.parts.notifier is not None:
            app.parts.notifier.close()


@asynccontextmanager
async def _looping(parts: AppState) -> AsyncIterator[None]:
    if not parts.settings.loops:
        yield
        return
    loops = start_loops(parts.database, parts.settings, parts.clock)
    try:
        yield
    finally:
        await loops.stop()


def default_project(session: Session, *, now: int) -> str:
    """The id of the project `default`, made if it is not there."""
    project = tokens.project_named(session, DEFAULT_PROJECT)
    if project is None:
        project = Project(id=new_id("prj"), name=DEFAULT_PROJECT, created_at=now)
        session.add(project)
        session.flush()
    return project.id


def ensure_admin_token(session: Session, data_dir: Path, *, now: int) -> None:
    """Sees to an admin token in the data directory: one for all servers that start at once.

    They take turns. The file is written before the transaction ends, so that the next one finds it; where the
    transaction fails after all, the next start does not know the token and makes another.
    """
    tokens.lock_bootstrap(session)
    kept = local.read_admin_token(data_dir)
    secret = admin_token(session, kept, now=now)
    if secret != kept:
        local.keep_admin_token(data_dir, secret)


def admin_token(session: Session, kept: str | None, *, now: int) -> str:
    """`kept` if it is an admin token good for another month, else a new one."""
    if kept is not None and callers.is_well_formed(kept, "pat"):
        row = tokens.live_token(session, callers.digest(kept), "pat", now + _RENEWED_BEFORE_US)
        if row is not None and row.role == "admin":
            return kept
    project_id = default_project(session, now=now)
    secret = callers.new_token("pat")
    token = Token(
        id=new_id("tok"),
        project_id=project_id,
        kind="pat",
        role="admin",
        name="local admin",
        secret_hash=callers.digest(secret),
        last4=secret[-4:],
        created_at=now,
        expires_at=now + _ADMIN_TOKEN_S * SECOND,
    )
    session.add(token)
    history.record_audit(session, "token.bootstrap", token.id, principal=callers.SERVER, project_id=project_id, now=now)
    return secret
