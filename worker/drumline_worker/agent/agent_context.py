"""What every member needs of its agent."""

import asyncio
import importlib.metadata
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from drumline_worker.agent.api import Api
from drumline_worker.agent.bundles import BundleCache
from drumline_worker.agent.compile_cache import CompiledEntries
from drumline_worker.agent.keys import MemberKeys
from drumline_worker.agent.launcher_client import LauncherClient
from drumline_worker.agent.registration import Registration
from drumline_worker.host.rundir import SPOOL_BYTES, RunDirectory

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
    def compilers(self) -> Path:
        """Compilers of chips that this host need not have, and the plans that they made."""
        return self.root / "compilers"

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
    def keys(self) -> Path:
        """Keys of members, a file each."""
        return self.agent / "keys"

    @property
    def home(self) -> Path:
        """HOME of the launcher: empty."""
        return self.root / "home"

    def create(self) -> None:
        """Makes all directories, 0700."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.root.chmod(0o700)
        for directory in (
            self.runs,
            self.bundles,
            self.checkpoints,
            self.compile_cache,
            self.agent,
            self.keys,
            self.home,
        ):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def run_directory(self, member: str) -> RunDirectory:
        """The run directory of one member."""
        return RunDirectory(self.runs / member)


class CoordinatorPort:
    """A port kept by a socket that is bound and never listens; the runner's service binds it too (SO_REUSEPORT)."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind(("", 0))
        host = f"[{address}]" if ":" in address else address
        self.coordinator = f"{host}:{self._socket.getsockname()[1]}"

    def close(self) -> None:
        """The member is over."""
        self._socket.close()


def own_address(server: str) -> str:
    """The address of this host as seen on its way to the server. Raises OSError when there is no way."""
    parts = urlsplit(server)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    family, _, _, _, address = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as udp:
        udp.connect(address)  # sends nothing
        return str(udp.getsockname()[0])


@dataclass(frozen=True, slots=True)
class AgentContext:
    """Tools that members share."""

    api: Api
    registration: Registration
    launcher: LauncherClient
    bundles: BundleCache
    layout: Layout
    checkpoints: Path
    """Checkpoints by run: here, or on a volume that other hosts mount too."""
    open_coordinator_port: Callable[[], CoordinatorPort]
    """Opens one for a gang whose rank 0 is here. Raises OSError."""
    compiled: CompiledEntries
    """What is in the compilation caches, by hash."""
    location: str
    """Where this worker lives; empty where that cannot be told."""
    keys: MemberKeys
    spool_bytes: int = SPOOL_BYTES
    """Telemetry of one member on disk that the server has not taken."""
    sending: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_SENDING))
    """Members take turns at it with their batches, in the order in which they come."""
