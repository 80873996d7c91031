"""Programs and jobs: what can be run."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from drumline.contracts.api.access import PrincipalRef
from drumline.contracts.base import Contract, JobId, ProjectId, Reply, Sha256, Timestamp, VersionId
from drumline.contracts.spec import CheckpointSpec, ProgramRef, RecordSpec, StrategySpec


class ProgramParameter(Reply):
    """A keyword of `main` as its signature declares it, read without running the program."""

    name: str
    type: Literal["int", "float", "str", "bool", "list", "json"]
    items: Literal["int", "float", "str", "bool", "json"] | None = None
    """What a list holds; None for anything that is no list."""
    required: bool
    default: JsonValue = None


class ProgramEntrypoint(Reply):
    """A function of a bundle that can be run as a job."""

    entrypoint: str
    summary: str
    """First line of its docstring."""
    parameters: tuple[ProgramParameter, ...]


class Bundle(Reply):
    """A program as it is stored: a zip, by content."""

    sha256: Sha256
    size_bytes: int
    files: int
    entrypoints: tuple[ProgramEntrypoint, ...]


class BundleUpload(Reply):
    """How far a bundle has come that is sent piece by piece."""

    sha256: Sha256
    received_bytes: int
    """From where on it is to be sent."""
    bundle: Bundle | None = None
    """Once it is stored."""
    by_address: bool = False
    """Whether a client can send each piece straight into the object store, to the address that it asks for."""


class PieceAddress(Reply):
    """Where in the object store a piece of a bundle is to be written, by a PUT and without a credential."""

    url: str
    headers: dict[str, str] = Field(default_factory=dict)
    """To be sent with it."""
    size_bytes: int
    """From the offset that was asked for."""
    expires_at: Timestamp
    """Then another address has to be asked for."""


class BundleSource(Reply):
    """The text files of a bundle, for reading and for submitting again with changes."""

    files: dict[str, str]


class JobVersion(Reply):
    """What runs: immutable, numbered per job, identified by the hash of its content."""

    id: VersionId
    job: str
    number: int
    content_hash: Sha256
    program: ProgramRef
    strategy: StrategySpec
    record: RecordSpec
    checkpoint: CheckpointSpec
    defaults: dict[str, JsonValue] = Field(default_factory=dict)
    """What the program takes for parameters that are left out, where that is no None and its source tells it."""
    created_at: Timestamp
    created_by: PrincipalRef = PrincipalRef()
    runs: int | None
    """How many runs it has; None inside a run, where nobody counts them."""


class Job(Reply):
    """A name in a project, with its newest version and the one that is current."""

    id: JobId
    name: str
    project: ProjectId
    latest_version: int
    current_version: int
    """What runs when the job is run by name: the newest one made, or the one that was rolled back to since."""
    runs: int
    created_at: Timestamp
    created_by: PrincipalRef = PrincipalRef()
    last_run_at: Timestamp | None


class RollbackRequest(Contract):
    """Body of `POST /jobs/{name}:rollback`."""

    version: Annotated[int, Field(ge=1, lt=2**31)]


class JobChange(Reply):
    """One move of a job's current version. Rows are only ever added."""

    number: int
    at: Timestamp
    by: str
    """The name of `principal`."""
    principal: PrincipalRef = PrincipalRef()
    cause: Literal["submit", "rollback"]
    """`submit`: a submission made a new version, which became current. `rollback`: a person chose another one."""
    from_version: int | None
    to_version: int


class FieldChange(Reply):
    """A field of the specification that two versions differ in, such as `strategy.executor`. None: not there."""

    path: str
    old: JsonValue
    new: JsonValue


class FileChange(Reply):
    """A file of the bundle that two versions differ in."""

    path: str
    change: Literal["added", "removed", "changed"]
    content: Literal["text", "binary", "too_large", "cut"]
    """What `diff` holds: a unified diff for `text`; nothing for a binary file, one that is too large to compare line by
    line, or one beyond the size that a whole answer may have."""
    old_bytes: int | None
    new_bytes: int | None
    diff: str
    added_lines: int
    removed_lines: int


class VersionDiff(Reply):
    """What changed from one version of a job to another."""

    job: str
    old: int
    new: int
    fields: tuple[FieldChange, ...]
    files: tuple[FileChange, ...]
    files_changed: int
    """All files that differ; `files` holds the first of them."""
