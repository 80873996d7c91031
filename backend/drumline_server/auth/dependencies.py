"""Who may call an endpoint: `reader`, `submitter`, `operator`, `admin` for people and programs, `worker` for hosts."""

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from drumline_server.auth import service, tokens
from drumline_server.auth.principal import Enrolment, Principal, Role, WorkerPrincipal
from drumline_server.auth.remembered import Remembered
from drumline_server.db import Database
from drumline_server.edge.connections import note_authenticated
from drumline_server.edge.cookies import session_cookie
from drumline_server.edge.shares import Shares
from drumline_server.errors import ForbiddenError, UnauthenticatedError
from drumline_server.settings import Settings

__all__ = ["Enrolment", "Principal", "Role", "WorkerPrincipal"]


def _bearer(connection: HTTPConnection) -> str | None:
    """The token of the `Authorization` header. Raises UnauthenticatedError if the header holds something else."""
    header = connection.headers.get("authorization")
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise UnauthenticatedError("The Authorization header is not of the form 'Bearer <token>'.")
    return token.strip()


async def authenticated(connection: HTTPConnection) -> Principal:
    """The person or program behind the request; with a bearer token the cookie is ignored."""
    known = connection.scope["state"].get("principal")
    if known is None:
        known = connection.scope["state"]["principal"] = await _recognise(connection)
        _admit(connection, known.counts_for)
    principal: Principal = known
    return principal


def _admit(connection: HTTPConnection, token: str) -> None:
    """Counts the request for its token. Raises CapError."""
    note_authenticated(connection.scope)
    shares: Shares = connection.app.state.shares
    shares.begin(connection.scope, token)


async def _recognise(connection: HTTPConnection) -> Principal:
    state = connection.app.state  # every request comes here, and a dependency costs some forty microseconds
    settings: Settings = state.settings
    database: Database = state.database
    token, now = _bearer(connection), state.clock.now()
    cookie = None if token else session_cookie(connection)
    if token is not None:
        people: Remembered[service.Recognised] = state.people
        found = await people.ask(token)
    elif cookie is not None:
        idle_s = settings.session_idle_s
        found = await database.read(
            lambda session: service.principal_of_session(session, cookie, idle_s=idle_s, now=now)
        )
    else:
        raise UnauthenticatedError
    if found.stale:
        await database.write(lambda session: service.note_use(session, found.principal, now=now))
        if token is not None:
            state.people.forget(token)  # else each request of this second would note it again
    return found.principal


def _at_least(role: Role) -> Callable[[HTTPConnection], Awaitable[Principal]]:
    async def check(connection: HTTPConnection) -> Principal:
        principal = await authenticated(connection)
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
        workers: Remembered[WorkerPrincipal] = connection.app.state.workers
        known = connection.scope["state"]["worker"] = await workers.ask(token)
        _admit(connection, known.token_id)
    return known


async def enrolment(connection: HTTPConnection) -> Enrolment:
    """The single-use token of a worker to be enrolled, which is good; `auth.service.redeem_enrolment` spends it."""
    known: Enrolment | None = connection.scope["state"].get("enrolment")
    if known is not None:
        return known
    token = _bearer(connection)
    if token is None:
        raise UnauthenticatedError
    database: Database = connection.app.state.database
    now = connection.app.state.clock.now()
    if not await database.read(lambda session: service.may_enrol(session, token, now=now)):
        raise service.unknown_enrolment()
    connection.scope["state"]["enrolment"] = known = Enrolment(token)
    _admit(connection, tokens.digest(token))
    return known


GUARDS: frozenset[Callable[[HTTPConnection], Awaitable[object]]] = frozenset(
    {authenticated, reader, submitter, operator, admin, worker, enrolment}
)
"""Each says who is calling by the head of the request alone, and is asked before a body is read (`routing.py`)."""

ReaderDep = Annotated[Principal, Depends(reader)]
SubmitterDep = Annotated[Principal, Depends(submitter)]
OperatorDep = Annotated[Principal, Depends(operator)]
AdminDep = Annotated[Principal, Depends(admin)]
WorkerDep = Annotated[WorkerPrincipal, Depends(worker)]
EnrolmentDep = Annotated[Enrolment, Depends(enrolment)]
