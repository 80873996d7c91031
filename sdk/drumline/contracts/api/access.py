"""Sessions, tokens and the version of the server."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from drumline.contracts.base import Contract, ProjectId, Reply, Secret, SessionId, Timestamp, Title, TokenId


class PrincipalRef(Reply):
    """Who did something, as of then; a name of None where nobody knows any more."""

    id: TokenId | SessionId | None = None
    """The token or the browser session; None for the server itself, and for what is older than this field."""
    name: str | None = None


class LoginRequest(Contract):
    """Body of `POST /sessions`: a one-time login code, or an API token."""

    code: Secret | None = None
    token: Secret | None = None


class LoginCode(Reply):
    """A one-time code for the dashboard, valid ten minutes: open `{address}/login#code=...`."""

    code: Secret
    expires_at: Timestamp


class Session(Reply):
    """Who is signed in."""

    principal: str
    role: Literal["viewer", "submitter", "operator", "admin"]
    project: ProjectId
    project_name: str
    expires_at: Timestamp | None


class TokenCreate(Contract):
    """Body of `POST /tokens`."""

    name: Annotated[Title, StringConstraints(min_length=1, max_length=100)]
    kind: Literal["pat", "enr"] = "pat"
    """`pat`: a person's or a service's API token; `enr`: a single-use token that enrols one worker."""
    role: Literal["viewer", "submitter", "operator", "admin"] = "submitter"
    expires_in_s: Annotated[int, Field(ge=60, le=7_776_000)] = 2_592_000


class Token(Reply):
    """A token as it can be listed: never its secret."""

    id: TokenId
    name: str
    kind: str
    role: str
    last4: str
    created_at: Timestamp
    expires_at: Timestamp
    last_used_at: Timestamp | None
    revoked_at: Timestamp | None
    made_by: TokenId | None
    """The token that made this one: this one ends when that one is revoked, and never expires after it."""
    created_by: PrincipalRef = PrincipalRef()
    revoked_by: PrincipalRef | None = None
    """Who revoked it, or a token that it came of."""


class TokenCreated(Token):
    """The one answer that holds the secret."""

    secret: Secret


class Version(Reply):
    """What the server is and can do."""

    version: str
    api: Literal["v1"] = "v1"
    protocol: int
    capabilities: tuple[str, ...]
