"""Who is asking: a person, a program or a worker, and what it may do."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal


class Role(IntEnum):
    """What a principal may do in its project; each role may all that the smaller ones may."""

    VIEWER = 1
    SUBMITTER = 2
    OPERATOR = 3
    ADMIN = 4

    @property
    def label(self) -> Literal["viewer", "submitter", "operator", "admin"]:
        """The role's name on the wire."""
        return _LABELS[self]

    @classmethod
    def of(cls, label: str) -> "Role":
        """The role that `label` names. Raises KeyError for another word."""
        return cls[label.upper()]


_LABELS: dict[Role, Literal["viewer", "submitter", "operator", "admin"]] = {
    Role.VIEWER: "viewer",
    Role.SUBMITTER: "submitter",
    Role.OPERATOR: "operator",
    Role.ADMIN: "admin",
}


@dataclass(frozen=True, slots=True)
class Principal:
    """A person or program that acts in one project, by a token or by a browser session (exactly one is set)."""

    project_id: str
    project_name: str
    role: Role
    kind: Literal["token", "session"]
    name: str
    token_id: str | None = None
    session_id: str | None = None
    session_token_id: str | None = None
    """The token that the session was opened with."""

    @property
    def owner_token_id(self) -> str | None:
        """The token that this principal came by: what it makes ends with that token and counts for it."""
        return self.token_id or self.session_token_id

    @property
    def counts_for(self) -> str:
        """What its requests and streams are counted for: a token with all of its sessions."""
        return self.owner_token_id or self.key

    @property
    def key(self) -> str:
        """What tells this principal's credential from every other."""
        return self.token_id or self.session_id or ""


@dataclass(frozen=True, slots=True)
class WorkerPrincipal:
    """The worker of one host, by its own token."""

    host_id: str
    token_id: str


@dataclass(frozen=True, slots=True)
class Enrolment:
    """A worker that has no host yet, with its single-use token still unspent."""

    token: str
