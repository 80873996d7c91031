"""Requests as the database sees them: those of one kind that come at once are one transaction, and the same key with
the same body gets the same answer.

One look-up and a few statements are for all of a transaction (`BatchingExecutor`), on both databases. While one of the
kind is under way, what comes waits and shares the next, which sees all that was committed before it came; what comes
alone goes at once. Before the next is a short pause, unless it is full: where requests keep coming, fewer and larger
transactions leave time for all else that needs the interpreter (`docs/benchmarks.md`). What is wrong with one request
is its own outcome and nobody else's; where a transaction of several failed for a reason that belongs to none of them,
each is tried again in one of its own. Whoever waits hears after the commit, and there is a bound to how many wait.

Rows of keys live in the transaction of what they answer for.
"""

import asyncio
import hashlib
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel
from sqlalchemy import Row, bindparam, delete, insert, select, text, update
from sqlalchemy.orm import Session

from drumline.contracts.problems import ProblemCode
from drumline_server.base.errors import DatabaseUnavailableError, DrumlineError
from drumline_server.storage.models import IdempotencyKey, table_of

log = logging.getLogger(__name__)

Request = TypeVar("Request")
Answer = TypeVar("Answer")
_MOST = 64
"""Requests in one transaction: enough for a flood, and nobody waits long for the others."""
_PAUSE_S = 0.005
"""Less than a transaction takes, so that nobody waits for twice as long."""
_BACKLOG = 5_000
"""Requests that may wait; beyond that the server says that it is overloaded."""


Outcomes = Sequence[Answer | DrumlineError]
_SENDER = ("project_id", "principal", "route")
_NAMES = (*_SENDER, "key")
_ROW = table_of(IdempotencyKey).c
_INSERT = insert(table_of(IdempotencyKey))
_FIND = select(_ROW.key, _ROW.body_hash, _ROW.response, _ROW.created_at).where(
    *(_ROW[name] == bindparam(name) for name in _SENDER), _ROW.key.in_(bindparam("keys", expanding=True))
)
_LOCK_KEYS = text(
    "SELECT pg_try_advisory_xact_lock(number) "
    "FROM unnest(CAST(:numbers AS bigint[])) WITH ORDINALITY AS turn(number, place) ORDER BY place"
)
_StoredAnswer = Row[str, str, Any, int]  # Any: JSON of the first answer
UNFINISHED = "unfinished"
"""In place of an answer: the id of what the request has begun to make, in more than one transaction."""
KEPT_US = 7 * 86_400 * 1_000_000


@dataclass(eq=False, slots=True)
class _Waiting(Generic[Request, Answer]):
    request: Request
    answer: asyncio.Future[Answer]


class BatchingExecutor(Generic[Request, Answer]):
    """The requests of one kind in one event loop.

    `transact` is `Database.write` or `Database.read`. `perform` gives each request its answer or the error that it is
    refused with; a refused one must leave nothing in the transaction.
    """

    def __init__(
        self,
        transact: Callable[[Callable[[Session], Outcomes[Answer]]], Awaitable[Outcomes[Answer]]],
        perform: Callable[[Session, Sequence[Request]], Outcomes[Answer]],
        *,
        pause_s: float = _PAUSE_S,
    ) -> None:
        self._transact = transact
        self._perform = perform
        self._pause_s = pause_s
        self._waiting: list[_Waiting[Request, Answer]] = []
        self._worker: asyncio.Task[None] | None = None

    async def submit(self, request: Request) -> Answer:
        """The answer, after the commit. Raises what the request is refused with, and as `Database.write`."""
        if len(self._waiting) >= _BACKLOG:
            raise DatabaseUnavailableError(f"{_BACKLOG} requests are waiting for the database.")
        waiting: _Waiting[Request, Answer] = _Waiting(request, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._worker is None:
            self._worker = asyncio.create_task(self._commit_waiting(), name="group-commit")
        return await waiting.answer

    async def _commit_waiting(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
                if wanted := [each for each in group if not each.answer.cancelled()]:
                    await self._commit_group(wanted)
                if 0 < len(self._waiting) < _MOST:
                    await asyncio.sleep(self._pause_s)
        finally:
            self._worker = None

    async def _commit_group(self, group: Sequence[_Waiting[Request, Answer]]) -> None:
        requests = [each.request for each in group]
        try:
            outcomes = await self._transact(lambda session: self._perform(session, requests))
        except DatabaseUnavailableError as error:
            outcomes = [error] * len(group)
        except Exception as error:  # noqa: BLE001 - handed to whoever waits
            await self._commit_one_by_one(group, error)
            return
        for each, outcome in zip(group, outcomes, strict=True):
            _set_outcome(each, outcome)

    async def _commit_one_by_one(self, group: Sequence[_Waiting[Request, Answer]], error: Exception) -> None:
        if len(group) == 1:
            _set_outcome(group[0], error)
            return
        log.warning("a transaction of %d requests failed, each is tried alone: %s", len(group), error)
        for each in group:
            await self._commit_group([each])


def _set_outcome(waiting: _Waiting[Request, Answer], outcome: Answer | Exception) -> None:
    if waiting.answer.cancelled():
        return
    if isinstance(outcome, Exception):
        waiting.answer.set_exception(outcome)
    else:
        waiting.answer.set_result(outcome)


@dataclass(frozen=True, slots=True)
class IdempotentRequest:
    """A request that creates something, as its sender named it."""

    project_id: str
    principal: str
    """Id of the sender's token or session."""
    route: str
    key: str
    body_hash: str

    @property
    def names(self) -> tuple[str, ...]:
        """What tells it from every other request."""
        return (self.project_id, self.principal, self.route, self.key)


def idempotent_request(project_id: str, principal: str, route: str, key: str, body: BaseModel) -> IdempotentRequest:
    """The identity of a request: what its body means, not how it was spelled."""
    return IdempotentRequest(
        project_id, principal, route, key, hashlib.sha256(body.model_dump_json().encode()).hexdigest()
    )


def replay(
    session: Session, request: IdempotentRequest, *, now: int
) -> dict[str, Any] | None:  # Any: JSON of the first answer
    """The answer that the key already has, or None for a new one.

    Raises DrumlineError: idempotency_mismatch for another body, idempotency_in_flight while a twin is being answered.
    """
    (found,) = replays(session, [request], now=now)
    if isinstance(found, DrumlineError):
        raise found
    return found


def replays(
    session: Session, requests: Sequence[IdempotentRequest], *, now: int
) -> list[dict[str, Any] | DrumlineError | None]:
    """For each of different requests what `replay` returns or raises."""
    turns = _lock_keys(session, requests)
    kept = _find_rows(session, requests)
    return [
        _replay(session, request, kept.get(request.names), now) if turn else _in_flight(request)
        for request, turn in zip(requests, turns, strict=True)
    ]


def is_answered(session: Session, request: IdempotentRequest, *, now: int) -> bool:
    """Whether the key has an answer: a look without taking turns, for what need not be done again."""
    row = _find_rows(session, [request]).get(request.names)
    return row is not None and row.created_at + KEPT_US >= now and UNFINISHED not in row.response


def remember(
    session: Session,
    answers: Iterable[tuple[IdempotentRequest, BaseModel | Mapping[str, str]]],
    *,
    status: int,
    now: int,
) -> None:
    """Keeps the answers for seven days."""
    session.execute(
        _INSERT,
        [
            {
                **dict(zip(_NAMES, request.names, strict=True)),
                "body_hash": request.body_hash,
                "response": answer,
                "status": status,
                "created_at": now,
            }
            for request, answer in answers
        ],
    )


def finish(session: Session, request: IdempotentRequest, answer: BaseModel) -> None:
    """Puts the answer in the place of `UNFINISHED`."""
    kept = (_ROW[name] == value for name, value in zip(_NAMES, request.names, strict=True))
    session.execute(update(table_of(IdempotencyKey)).where(*kept).values(response=answer))


def forget_old_keys(session: Session, *, now: int) -> None:
    """Removes answers older than seven days."""
    session.execute(delete(IdempotencyKey).where(IdempotencyKey.created_at < now - KEPT_US))


def _find_rows(session: Session, requests: Sequence[IdempotentRequest]) -> dict[tuple[str, ...], _StoredAnswer]:
    """The rows of the requests by `names`, in a statement for each sender."""
    senders: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for request in requests:
        senders[request.names[:-1]].append(request.key)
    return {
        (*sender, row.key): row
        for sender, keys in senders.items()
        for row in session.execute(_FIND, {**dict(zip(_SENDER, sender, strict=True)), "keys": keys})
    }


def _replay(
    session: Session, request: IdempotentRequest, row: _StoredAnswer | None, now: int
) -> dict[str, Any] | DrumlineError | None:
    if row is None:
        return None
    if row.created_at + KEPT_US < now:
        session.execute(delete(IdempotencyKey).where(*(_ROW[name] == getattr(request, name) for name in _NAMES)))
        return None
    if row.body_hash != request.body_hash:
        return DrumlineError(
            ProblemCode.IDEMPOTENCY_MISMATCH,
            f"The Idempotency-Key {request.key!r} was used before with another body.",
            hint="Use a new key for a new request.",
        )
    answer: dict[str, Any] = row.response
    return answer


def _lock_keys(session: Session, requests: Sequence[IdempotentRequest]) -> list[bool]:
    """Whether it is each request's turn: keeps twins apart until the commit.

    SQLite has one writer, where a twin in another transaction cannot be met.
    """
    if session.get_bind().dialect.name != "postgresql":
        return [True] * len(requests)
    return list(session.scalars(_LOCK_KEYS, {"numbers": [_number(request) for request in requests]}))


def _number(request: IdempotentRequest) -> int:
    """What stands for the key in PostgreSQL's advisory locks."""
    return int.from_bytes(hashlib.sha256("\0".join(request.names).encode()).digest()[:8], signed=True)


def _in_flight(request: IdempotentRequest) -> DrumlineError:
    return DrumlineError(
        ProblemCode.IDEMPOTENCY_IN_FLIGHT,
        f"A request with the Idempotency-Key {request.key!r} is being answered.",
        hint="Send it again in a moment.",
    )
