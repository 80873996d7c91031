"""What every member needs of its agent."""

import asyncio
import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from drumline_worker.agent.api import Api
from drumline_worker.agent.bundles import BundleCache
from drumline_worker.agent.compile_cache import CompiledEntries
from drumline_worker.agent.launcher_client import LauncherClient
from drumline_worker.agent.meeting_place import MeetingPlace
from drumline_worker.agent.session import Session
from drumline_worker.rundir import SPOOL_BYTES, RunDirectory

_version = cache(importlib.metadata.version)


MAX_SENDING = 2
"""Batches of telemetry of this host that are under way at once: a flood of one member holds up no other."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The worker's data directory."""

    root: Path

    @property
    def runs(self) -> Path:
        """Run directories of members."""
        return self.root / "runs"

    @property
    def bundles(self) -> Path:
        """Cached bundles."""
        return self.root / "bundles"

    @property
    def checkpoints(self) -> Path:
        """Checkpoints by run, where no volume is named for them."""
        return self.root / "checkpoints"

    @property
    def probes(self) -> Path:
        """Run directories of probes."""
        return self.root / "probes"

    @property
    def compile_cache(self) -> Path:
        """JAX's persistent compilation caches by job version; another JAX has others beside it."""
        return self.root / "compiled" / _version("jax")

    @property
    def compiled_entries(self) -> Path:
        """The hashes of what is in those of this JAX."""
        return self.agent / "compiled.json"

    @property
    def agent(self) -> Path:
        """The agent's own sockets and records."""
        return self.root / "agent"

    @property
    def home(self) -> Path:
        """HOME of the launcher: empty."""
        return self.root / "home"

    def create(self) -> None:
        """Makes all directories, 0700."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.root.chmod(0o700)
        for directory in (self.runs, self.bundles, self.checkpoints, self.compile_cache, self.agent, self.home):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def run_directory(self, member: str) -> RunDirectory:
        """The run directory of one member."""
        return RunDirectory(self.runs / member)


@dataclass(frozen=True, slots=True)
class Workbench:
    """Tools that members share."""

    api: Api
    session: Session
    launcher: LauncherClient
    bundles: BundleCache
    layout: Layout
    checkpoints: Path
    """Checkpoints by run: here, or on a volume that other hosts mount too."""
    meeting_place: Callable[[], MeetingPlace]
    """Opens one for a gang whose rank 0 is here. Raises OSError."""
    compiled: CompiledEntries
    """What is in the compilation caches, by hash."""
    place: str
    """Where this worker lives; empty where that cannot be told."""
    spool_bytes: int = SPOOL_BYTES
    """Telemetry of one member on disk that the server has not taken."""
    sending: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_SENDING))
    """Members take turns at it with their batches, in the order in which they come."""
