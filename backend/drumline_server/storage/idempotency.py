"""Same key, same body: same answer. Rows live in the transaction of what they answer for."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from sqlalchemy import Row, bindparam, delete, insert, select, text, update
from sqlalchemy.orm import Session

from drumline.contracts.problems import ProblemCode
from drumline_server.base.errors import DrumlineError
from drumline_server.storage.models import IdempotencyKey, table_of

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
