"""The first project and the first admin token, so that a new server can be used and by nobody else."""

from pathlib import Path

from sqlalchemy.orm import Session

from drumline.contracts.ids import new_id
from drumline_server.app.local import write_private
from drumline_server.base import credentials
from drumline_server.services import identity
from drumline_server.storage import history, tokens
from drumline_server.storage.models import Project, Token

DEFAULT_PROJECT = "default"
ADMIN_TOKEN_FILE = "admin_token"
_LIFETIME_S = 90 * 86_400
_RENEW_BEFORE = 30 * 86_400 * identity.SECOND


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
    kept = read_admin_token(data_dir)
    secret = admin_token(session, kept, now=now)
    if secret != kept:
        keep_admin_token(data_dir, secret)


def admin_token(session: Session, kept: str | None, *, now: int) -> str:
    """`kept` if it is an admin token good for another month, else a new one."""
    if kept is not None and credentials.is_well_formed(kept, "pat"):
        row = tokens.live_token(session, credentials.digest(kept), "pat", now + _RENEW_BEFORE)
        if row is not None and row.role == "admin":
            return kept
    project_id = default_project(session, now=now)
    secret = credentials.new_token("pat")
    token = Token(
        id=new_id("tok"),
        project_id=project_id,
        kind="pat",
        role="admin",
        name="local admin",
        secret_hash=credentials.digest(secret),
        last4=secret[-4:],
        created_at=now,
        expires_at=now + _LIFETIME_S * identity.SECOND,
    )
    session.add(token)
    history.record_audit(
        session, "token.bootstrap", token.id, principal=credentials.SERVER, project_id=project_id, now=now
    )
    return secret


def read_admin_token(data_dir: Path) -> str | None:
    """The admin token kept in the data directory, if any."""
    try:
        return (data_dir / ADMIN_TOKEN_FILE).read_text().strip() or None
    except FileNotFoundError:
        return None


def keep_admin_token(data_dir: Path, secret: str) -> None:
    """Writes the admin token to a file that only this user can read."""
    write_private(data_dir / ADMIN_TOKEN_FILE, f"{secret}\n")
