"""Whether the directory of bundles is the one that the database means.

Several API processes on one database share one directory. One that lacked it would take submissions whose programs
nobody finds: each run would fail at its start.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from drumline_server.bundles import queries
from drumline_server.bundles.blobs import BlobStore
from drumline_server.errors import NotFoundError

_FILE = "store.id"


class StoreError(Exception):
    """The directory of bundles is not that of the database; the message says what to set."""


def require_own_store(database_url: str, data_dir: Path, *, now: int) -> None:
    """Marks the directory and the database at their first meeting; raises StoreError where they do not belong together.

    A database that is older than marks takes the directory that has its newest bundle.
    """
    blobs = data_dir / "blobs"
    engine = create_engine(database_url)
    try:
        with Session(engine) as session, session.begin():
            known = queries.store_identity(session)
            if known is None and _has_newest(session, BlobStore(blobs)):
                queries.add_store_identity(session, _marked(blobs), now=now)
                known = queries.store_identity(session)
    finally:
        engine.dispose()
    if known is None or _read(blobs) != known:
        raise StoreError(
            f"The data directory {data_dir} does not hold the programs of this database: all API processes of one "
            "database share one directory. Set DRUMLINE_DATA_DIR to the directory of the others, or mount it here. "
            f"If it was moved or restored, bring its file blobs/{_FILE} too"
            + (f", which holds {known}." if known else " and what else lay in blobs.")
        )


def _has_newest(session: Session, store: BlobStore) -> bool:
    newest = queries.newest_bundle(session)
    if newest is None:
        return True
    try:
        store.path(newest)
    except NotFoundError:
        return False
    return True


def _marked(blobs: Path) -> str:
    """The identity of the directory, made if it has none; the same for all who ask at once."""
    partial = blobs / f".{_FILE}.{secrets.token_hex(8)}"
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{secrets.token_hex(16)}\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        with suppress(FileExistsError):
            os.link(partial, blobs / _FILE)
    finally:
        partial.unlink()
    return _read(blobs)


def _read(blobs: Path) -> str:
    try:
        return (blobs / _FILE).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
