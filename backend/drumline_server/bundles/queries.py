"""Rows of `bundle`."""

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline_server.inserts import insert_or_ignore
from drumline_server.models import Bundle, Store

_STORE = "bundles"
_FIND = select(Bundle).where(Bundle.project_id == bindparam("project"), Bundle.sha256 == bindparam("sha256"))


def insert_bundle(session: Session, project_id: str, packed: api.Bundle, *, now: int) -> None:
    """Adds the row unless the project has it."""
    row = {
        "project_id": project_id,
        "sha256": packed.sha256,
        "size_bytes": packed.size_bytes,
        "files": packed.files,
        "entrypoints": [entrypoint.model_dump(mode="json") for entrypoint in packed.entrypoints],
        "created_at": now,
    }
    insert_or_ignore(session, Bundle, [row])


def find_bundle(session: Session, project_id: str, sha256: str) -> Bundle | None:
    """The project's bundle of that content."""
    return session.scalar(_FIND, {"project": project_id, "sha256": sha256})


def newest_bundle(session: Session) -> str | None:
    """The digest of the bundle that was stored last, of any project."""
    return session.scalar(select(Bundle.sha256).order_by(Bundle.created_at.desc()).limit(1))


def store_identity(session: Session) -> str | None:
    """What the directory of bundles is marked with."""
    return session.scalar(select(Store.identity).where(Store.name == _STORE))


def add_store_identity(session: Session, identity: str, *, now: int) -> None:
    """Remembers the mark, unless another process was first."""
    insert_or_ignore(session, Store, [{"name": _STORE, "identity": identity, "made_at": now}])
