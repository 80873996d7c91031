"""What endpoints ask for by type: the parts of the application, and who is calling; and the routers that ask it.

A route asks who is calling before it reads a body.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from enum import Enum
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import SecretStr
from starlette.requests import HTTPConnection

from drumline.contracts.api import MAX_FIELD_NAME, MAX_PAGE
from drumline.contracts.base import Text
from drumline.contracts.problems import nearest
from drumline.contracts.worker_api import KEY_HEADER
from drumline_server.base import callers
from drumline_server.base.callers import MAX_CURSOR, Enrolment, Principal, Role, WorkerPrincipal
from drumline_server.base.errors import ForbiddenError, InvalidRequestError, UnauthenticatedError
from drumline_server.http.connections import note_authenticated
from drumline_server.http.json_bodies import JsonRoute
from drumline_server.http.layers import SAFE, session_cookie
from drumline_server.http.request_context import AppState, app_state
from drumline_server.services import identity


def _bearer(connection: HTTPConnection) -> str | None:
    """The token of the `Authorization` header. Raises UnauthenticatedError if the header holds something else."""
    header = connection.headers.get("authorization")
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise UnauthenticatedError("The Authorization header is not of the form 'Bearer <token>'.")
    return token.strip()


async def authenticate(connection: HTTPConnection) -> Principal:
    """The person or program behind the request; with a bearer token the cookie is ignored."""
    known: Principal | None = connection.scope["state"].get("principal")
    if known is not None:
        return known
    app = await app_state(connection)
    token, now = _bearer(connection), app.clock.now()
    cookie = None if token else session_cookie(connection)
    if token is not None:
        found = await app.people.get(token)
    elif cookie is not None:
        idle_s = app.settings.session_idle_s
        found = await app.database.read(
            lambda session: identity.principal_of_session(session, cookie, idle_s=idle_s, now=now)
        )
    else:
        raise UnauthenticatedError
    if found.stale:
        await app.database.write(lambda session: identity.note_use(session, found.principal, now=now))
        if token is not None:
            app.people.forget(token)  # else each request of this second would note it again
    connection.scope["state"]["principal"] = known = found.principal
    _admit(connection, app, known.counts_for)
    return known


def _admit(connection: HTTPConnection, app: AppState, token: str) -> None:
    """Counts the request for its token. Raises CapError."""
    note_authenticated(connection.scope)
    app.shares.begin(connection.scope, token)


def _at_least(role: Role) -> Callable[[HTTPConnection], Awaitable[Principal]]:
    async def check(connection: HTTPConnection) -> Principal:
        principal = await authenticate(connection)
        if principal.role < role:
            raise ForbiddenError(
                f"This needs the role {role.label}; {principal.name} has the role {principal.role.label}.",
                hint=f"Ask an admin for a token with the role {role.label}.",
            )
        return principal

    check.__name__ = check.__qualname__ = f"require_{role.label}"
    return check


reader = _at_least(Role.VIEWER)
submitter = _at_least(Role.SUBMITTER)
operator = _at_least(Role.OPERATOR)
admin = _at_least(Role.ADMIN)


async def worker(connection: HTTPConnection) -> WorkerPrincipal:
    """The worker of one host; takes only worker tokens."""
    known: WorkerPrincipal | None = connection.scope["state"].get("worker")
    if known is None:
        token = _bearer(connection)
        if token is None:
            raise UnauthenticatedError
        app = await app_state(connection)
        known = connection.scope["state"]["worker"] = await app.workers.get(token)
        _admit(connection, app, known.token_id)
    return known


async def enrolment(connection: HTTPConnection) -> Enrolment:
    """The single-use token of a worker to be enrolled, which is good; `access.enroll` spends it."""
    known: Enrolment | None = connection.scope["state"].get("enrolment")
    if known is not None:
        return known
    token = _bearer(connection)
    if token is None:
        raise UnauthenticatedError
    app = await app_state(connection)
    now = app.clock.now()
    if not await app.database.read(lambda session: identity.may_enrol(session, token, now=now)):
        raise identity.unknown_enrolment()
    connection.scope["state"]["enrolment"] = known = Enrolment(token)
    _admit(connection, app, callers.digest(token))
    return known


GUARDS: frozenset[Callable[[HTTPConnection], Awaitable[object]]] = frozenset(
    {authenticate, reader, submitter, operator, admin, worker, enrolment}
)
"""Each says who is calling by the head of the request alone, and is asked before a body is read (`GuardedRoute`)."""

ReaderDep = Annotated[Principal, Depends(reader)]
SubmitterDep = Annotated[Principal, Depends(submitter)]
OperatorDep = Annotated[Principal, Depends(operator)]
AdminDep = Annotated[Principal, Depends(admin)]
WorkerDep = Annotated[WorkerPrincipal, Depends(worker)]
EnrolmentDep = Annotated[Enrolment, Depends(enrolment)]


async def require_known_query(request: Request) -> None:
    """Raises InvalidRequestError for a parameter that the endpoint does not have: a misspelt filter would show all."""
    route: APIRoute = request.scope["route"]
    known = [field.alias for field in route.dependant.query_params]
    for name in request.query_params:
        if name not in known:
            message = f"has no parameter {name[:60]!r}{nearest(name, known)}; it takes {', '.join(known)}"
            raise InvalidRequestError("query", message)


async def hold_large(connection: HTTPConnection) -> AsyncIterator[None]:
    """Counts a large answer until it is sent. Raises CapError."""
    app = await app_state(connection)
    async with app.shares.hold_large(connection.scope):
        yield


async def hold_export(app: Annotated[AppState, Depends(app_state)]) -> AsyncIterator[None]:
    """Counts a file until it is sent. Raises CapError."""
    async with app.shares.hold_export():
        yield


DEFAULT_PAGE = 50
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="Items on the page.")]
CursorText = Annotated[
    str | None, Query(max_length=MAX_CURSOR, description="`next` of the page before; the first page without.")
]
Contains = Annotated[Text, Query(max_length=MAX_FIELD_NAME, description="Part of the name, in any case.")]
LARGE = Depends(hold_large)
EXPORT = Depends(hold_export)
AppDep = Annotated[AppState, Depends(app_state)]
"""The parts of the running server; one dependency for all, as each costs a request some forty microseconds."""
KnownQuery = Annotated[None, Depends(require_known_query)]
"""Of an endpoint with filters, behind its principal: who may not ask learns nothing."""
Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="Names this submission: the same key and body give the same run, however often it is sent.",
    ),
]
MemberKeyDep = Annotated[
    SecretStr | None,
    Header(alias=KEY_HEADER, min_length=43, max_length=43, description="The key of the member's claim."),
]
"""Of what is said of a member; whether it needs one, its claim tells."""

API = "/api/v1"
Guard = Callable[[HTTPConnection], Awaitable[object]]


Direct = Annotated[bool, Query(description="Whether the answer may be the address of it in an object store.")]


class GuardedRoute(JsonRoute):
    """A route whose guards speak first: FastAPI reads the body before any dependency is asked.

    A few requests of a person or program that only read are worked on at once; further ones wait for their turn.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:  # Any: as FastAPI declares it
        """The handler, behind its guards."""
        handle = super().get_route_handler()
        guards = tuple(dict.fromkeys(guards_of(self.dependant)))

        async def guarded(request: Request) -> Response:
            for guard in guards:
                await guard(request)
            if request.method not in SAFE or "principal" not in request.scope["state"]:
                return await handle(request)
            app = await app_state(request)
            async with app.shares.turn(request.scope, "read"):
                return await handle(request)

        return guarded


def guards_of(dependant: Dependant) -> Iterator[Guard]:
    """The guards that a route asks for, in the order in which it does."""
    for dependency in dependant.dependencies:
        if dependency.call in GUARDS:
            yield dependency.call
        yield from guards_of(dependency)


def api_router(prefix: str = "", *, tags: list[str | Enum] | None = None) -> APIRouter:
    """A router for the endpoints of one domain below `prefix`; their names are the names of operations."""
    return APIRouter(
        prefix=f"{API}{prefix}", tags=tags, generate_unique_id_function=_operation_id, route_class=GuardedRoute
    )


def _operation_id(route: APIRoute) -> str:
    return route.name
