"""Keeps files for the run: copied into the member's own directory, from where the agent sends them to the server.

Their bytes pass neither the socket to the shim nor the spool; the event that tells of them comes after they are there.
"""

import os
import shutil
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from drumline.contracts.artifacts import MAX_ARTIFACTS
from drumline.contracts.base import make_storable
from drumline.job import ArtifactWarning
from drumline.local.artifacts import RefusedArtifactError, copy_source, find_source
from drumline_worker.runner.channel import Channel

_KEPT_FREE_BYTES = 512 * 2**20
"""Of the host's disk, for telemetry and other runs."""
_NO_SERVER = "nothing is kept of a plan, nor by a server of a release that takes no artifacts"


class ArtifactReports:
    """Copies what the program keeps, and tells of it. What is refused is a warning and a gap, and ends no training."""

    def __init__(
        self, channel: Channel, directory: Path, most_bytes: int | None, on_chunk: Callable[[], None] = lambda: None
    ) -> None:
        """`most_bytes`: of one; None where the server takes none. `on_chunk` is called while it is copied."""
        self._channel = channel
        self._directory = directory
        self._most_bytes = most_bytes
        self._on_chunk = on_chunk
        self._saved = 0

    def save(
        self,
        path: str | os.PathLike[str],
        name: str | None,
        kind: str | None,
        metadata: Mapping[str, Any] | None,  # Any: as RunContext has it
    ) -> bool:
        """Whether it is kept, and will be sent."""
        try:
            self._save(path, name, kind, metadata)
        except (RefusedArtifactError, OSError) as error:
            detail = str(make_storable(str(error)))
            if self._most_bytes is not None:  # a server of the release before knows no such gap
                self._channel.send("gap", what="artifact", count=1, detail=detail[:500])
            warnings.warn(f"run.save_artifact keeps nothing: {detail}", ArtifactWarning, stacklevel=3)
            return False
        return True

    def _save(
        self,
        path: str | os.PathLike[str],
        name: str | None,
        kind: str | None,
        metadata: Mapping[str, Any] | None,  # Any: as RunContext has it
    ) -> None:
        if self._most_bytes is None:
            raise RefusedArtifactError(_NO_SERVER)
        if self._saved == MAX_ARTIFACTS:
            raise RefusedArtifactError(
                f"one process keeps at most {MAX_ARTIFACTS} artifacts; {path!r:.200} is one more"
            )
        source = find_source(path, name, kind, metadata, most_bytes=self._most_bytes)
        self._directory.mkdir(mode=0o700, exist_ok=True)
        free = shutil.disk_usage(self._directory).free
        if source.size_bytes + _KEPT_FREE_BYTES > free:
            raise RefusedArtifactError(
                f"{path!r:.200} has {source.size_bytes} bytes; the host's disk has {free} left, "
                f"of which {_KEPT_FREE_BYTES} are kept free"
            )
        draft = self._directory / f".draft-{self._saved}"
        try:
            with draft.open("wb") as file:
                saved = copy_source(source, file, most_bytes=self._most_bytes, on_chunk=self._on_chunk)
            draft.rename(self._directory / saved.sha256.removeprefix("sha256:"))
        finally:
            draft.unlink(missing_ok=True)
        self._saved += 1
        self._channel.send("artifact", artifact=saved.model_dump(mode="json"))
