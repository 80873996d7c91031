"""Files that programs keep with their runs, listed."""

from pydantic import Field

from drumline.contracts.artifacts import Metadata
from drumline.contracts.base import ArtifactId, AttemptId, HostId, Reply, RunId, Sha256, Timestamp
from drumline.contracts.states import ArtifactState


class Artifact(Reply):
    """A file, or a directory as one zip, that a program keeps with its run."""

    id: ArtifactId
    run: RunId
    attempt: AttemptId
    rank: int
    """Of the process that kept it."""
    host: HostId
    host_name: str
    name: str
    """Of several of one name the newest is listed first."""
    kind: str | None
    """What the program takes it for, such as `model`."""
    is_directory: bool
    files: int
    """In the zip of a directory; 1 for a file."""
    size_bytes: int
    sha256: Sha256
    metadata: Metadata = Field(default_factory=dict)
    state: ArtifactState
    received_bytes: int
    """How much of it is there."""
    reason: str | None = None
    """Why it is lost."""
    at: Timestamp
    """When it was kept, by its host's clock."""
    stored_at: Timestamp | None = None
