"""Files that a program keeps with its run: what it says of them, within bounds, and how far one has come."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field, StringConstraints

from drumline.contracts.base import AtMost, Contract, Reply, Sha256, Text, Title
from drumline.contracts.states import ArtifactState

MAX_ARTIFACTS = 1_000
"""Of one run."""
MAX_ARTIFACT_NAME = 200
MAX_ARTIFACT_FILES = 10_000
"""In one directory that is kept as a whole."""
MAX_METADATA = 20
MAX_METADATA_NAME = 100
MAX_METADATA_TEXT = 500
MAX_METADATA_CHARACTERS = 4_000
"""Of all names and texts: a page of artifacts has those of each."""


def refuse_path(name: str) -> str:
    """The name, if a file may be called so wherever it is saved. Raises ValueError."""
    if odd := next((each for each in "/\\:" if each in name), None):
        raise ValueError(f"holds {odd!r}; it names a file, not a path")
    if name.startswith(".") or name != name.strip() or name.endswith("."):
        raise ValueError("begins or ends with a dot or a space")
    return name


def _refuse_long(metadata: dict[str, Any]) -> dict[str, Any]:  # Any: of the values that the type admits
    total = sum(len(name) + (len(value) if isinstance(value, str) else 0) for name, value in metadata.items())
    if total > MAX_METADATA_CHARACTERS:
        raise ValueError(f"has {total} characters of names and texts; at most {MAX_METADATA_CHARACTERS}")
    return metadata


ArtifactName = Annotated[
    Title, StringConstraints(min_length=1, max_length=MAX_ARTIFACT_NAME), AfterValidator(refuse_path)
]
ArtifactKind = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,39}$")]
"""What the program takes it for, such as `model`, `plot` or `table`."""
_MetadataName = Annotated[Title, StringConstraints(min_length=1, max_length=MAX_METADATA_NAME)]
_MetadataText = Annotated[Text, StringConstraints(max_length=MAX_METADATA_TEXT)]
_Number = Annotated[float, Field(ge=-1e308, le=1e308)]
_Whole = Annotated[int, Field(gt=-(2**53), lt=2**53)]
Metadata = Annotated[
    dict[_MetadataName, bool | _Whole | _Number | _MetadataText | None],
    AtMost(MAX_METADATA),
    AfterValidator(_refuse_long),
]
_Bytes = Annotated[int, Field(ge=0, lt=2**53)]


class ArtifactNote(Contract):
    """What a program says of what it keeps."""

    name: ArtifactName
    kind: ArtifactKind | None = None
    metadata: Metadata = Field(default_factory=dict)


class SavedArtifact(ArtifactNote):
    """What a program has kept: a file, or a directory as one zip."""

    is_directory: bool = False
    files: Annotated[int, Field(ge=0, le=MAX_ARTIFACT_FILES)] = 1
    size_bytes: _Bytes
    """Of the file, or of the zip."""
    sha256: Sha256


class ArtifactUpload(Reply):
    """How far a content has come that a host sends."""

    state: ArtifactState | None
    """None where the run has no such artifact: its telemetry may be on its way."""
    size_bytes: int = 0
    received_bytes: int = 0
    by_address: bool = False
    """Whether pieces go to where `POST .../address` says."""
