"""Same key, same body: same answer. Rows live in the transaction of what they answer for."""

import hashlib
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import BaseModel
from sqlalchemy import bindparam, delete, insert, select, text
from sqlalchemy.orm import Session

from drumline.contracts.problems import ProblemCode
from drumline_server.errors import DrumlineError
from drumline_server.models import IdempotencyKey, table_of

_NAMES = ("project_id", "principal", "route", "key")
_ROW = table_of(IdempotencyKey).c
_INSERT = insert(table_of(IdempotencyKey))
_FIND = select(_ROW.body_hash, _ROW.answer, _ROW.created_at).where(*(_ROW[name] == bindparam(name) for name in _NAMES))
KEPT_US = 7 * 86_400 * 1_000_000


@dataclass(frozen=True, slots=True)
class Keyed:
    """A request that creates something, as its sender named it."""

    project_id: str
    principal: str
    """Id of the sender's token or session."""
    route: str
    key: str
    body_hash: str


def keyed(project_id: str, principal: str, route: str, key: str, body: BaseModel) -> Keyed:
    """The identity of a request: what its body means, not how it was spelled."""
    return Keyed(project_id, principal, route, key, hashlib.sha256(body.model_dump_json().encode()).hexdigest())


def replay(session: Session, request: Keyed, *, now: int) -> dict[str, Any] | None:  # Any: JSON of the first answer
    """The answer that the key already has, or None for a new one.

    Raises DrumlineError: idempotency_mismatch for another body, idempotency_in_flight while a twin is being answered.
    """
    _take_turn(session, request)
    row = session.execute(_FIND, asdict(request)).one_or_none()
    if row is None:
        return None
    if row.created_at + KEPT_US < now:
        session.execute(delete(IdempotencyKey).where(*(_ROW[name] == getattr(request, name) for name in _NAMES)))
        return None
    if row.body_hash != request.body_hash:
        raise DrumlineError(
            ProblemCode.IDEMPOTENCY_MISMATCH,
            f"The Idempotency-Key {request.key!r} was used before with another body.",
            hint="Use a new key for a new request.",
        )
    answer: dict[str, Any] = row.answer
    return answer


def is_answered(session: Session, request: Keyed, *, now: int) -> bool:
    """Whether the key has an answer: a look without taking turns, for what need not be done again."""
    row = session.execute(_FIND, asdict(request)).one_or_none()
    return row is not None and row.created_at + KEPT_US >= now


def remember(session: Session, request: Keyed, answer: dict[str, Any], *, status: int, now: int) -> None:
    """Keeps the answer for seven days."""
    session.execute(_INSERT, [{**asdict(request), "status": status, "answer": answer, "created_at": now}])


def forget_old(session: Session, *, now: int) -> None:
    """Removes answers older than seven days."""
    session.execute(delete(IdempotencyKey).where(IdempotencyKey.created_at < now - KEPT_US))


def _take_turn(session: Session, request: Keyed) -> None:
    """Keeps twins apart until the commit. SQLite has one writer, where a twin in flight cannot be met."""
    if session.get_bind().dialect.name != "postgresql":
        return
    name = f"{request.project_id}\0{request.principal}\0{request.route}\0{request.key}".encode()
    number = int.from_bytes(hashlib.sha256(name).digest()[:8], signed=True)
    if not session.scalar(text("SELECT pg_try_advisory_xact_lock(:number)"), {"number": number}):
        raise DrumlineError(
            ProblemCode.IDEMPOTENCY_IN_FLIGHT,
            f"A request with the Idempotency-Key {request.key!r} is being answered.",
            hint="Send it again in a moment.",
        )
