"""What every member needs of its agent, and how it starts by that: claim, bundle, start order, launch."""

import asyncio
import importlib.metadata
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from drumline._log_lines import log_about
from drumline.contracts.reasons import EndReason
from drumline.contracts.worker_api import KEYED_PROTOCOL, Claim, Claimed
from drumline_worker.agent import host_cache
from drumline_worker.agent.api import Api, Backoff, MemberKeys, RefusedError, UnreachableError
from drumline_worker.agent.host_cache import BundleCache, CompiledEntries
from drumline_worker.agent.links import LauncherClient
from drumline_worker.agent.registration import Registration
from drumline_worker.host.rundir import SPOOL_BYTES, Ending, RunDirectory, StartOrder
from drumline_worker.host.system import boot_id, boottime, now

_version = cache(importlib.metadata.version)
MAX_SENDING = MAX_UPLOADING = 2
"""Batches of telemetry of this host, and pieces of artifacts, under way at once: a flood of one member
holds up no other."""
_LOG = logging.getLogger(__name__)
_CLAIM_ATTEMPTS = 5
"""With the pauses between them some 6 s, about a heartbeat: the reply to the next one assigns the member again."""


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
    uploading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_UPLOADING))
    """And at this with pieces of what they keep."""


class ClaimLostError(Exception):
    """The member may have been ours, which no answer told, or have run here and be assigned late; it is over by now."""


async def claim(context: AgentContext, member: str, fence: int, coordinator: str | None = None) -> Claimed | None:
    """The claimed member; None when the database decided otherwise, or could not be asked: it is assigned again.

    `coordinator` is where rank 0 of a gang will let the others meet. Raises ClaimLostError.
    """
    unanswered = False
    backoff = Backoff()
    for _ in range(_CLAIM_ATTEMPTS):
        await context.registration.until_settled()
        registrations = context.registration.times_sent
        key = context.keys.make(member) if context.registration.answer.protocol >= KEYED_PROTOCOL else None
        body = Claim(incarnation=context.registration.incarnation, fence=fence, coordinator=coordinator, key=key)
        try:
            claimed = await context.api.claim(member, body)
            if registrations == context.registration.times_sent:
                log_about(run=claimed.run)
                return claimed
            unanswered = True  # a registration was sent meanwhile, which does not list it
        except UnreachableError as error:
            _LOG.warning("claiming %s: %s", member, error)
            unanswered = True
            await asyncio.sleep(error.retry_after_s or backoff.next_s())
        except RefusedError as error:
            _LOG.info("claim of %s refused: %s", member, error)
            if error.worker_is_unknown and error.status in (401, 403):
                context.registration.register_again()
            if unanswered and error.member_is_gone:
                raise ClaimLostError from None
            break
    if unanswered:
        context.keys.hold(member)
    return None


@dataclass(slots=True)
class Started:
    """When the steps of a start were done, CLOCK_BOOTTIME in seconds; None of what is still to come."""

    claimed_at: float | None = None
    complete_at: float | None = None
    """All of its gang was claimed."""
    unpacked_at: float | None = None

    def note_claim(self, asked_at: float) -> None:
        """The first answer to a claim is there: the server wrote it down between question and answer."""
        if self.claimed_at is None:
            self.claimed_at = (asked_at + boottime()) / 2


async def prepare(context: AgentContext, claimed: Claimed, started: Started) -> None:
    """Makes the run directory, with the program in it, and waits for the launcher.

    Raises BundleUnavailableError, LaunchError, or OSError when a write fails.
    """
    directory = context.layout.run_directory(claimed.member)
    started.complete_at = boottime()
    directory.create()
    await context.bundles.extract(claimed.bundle, directory.program)
    started.unpacked_at = boottime()
    await context.launcher.until_ready()


async def launch(context: AgentContext, claimed: Claimed, started: Started) -> None:
    """Starts the shim in the prepared run directory. Raises LaunchError or OSError."""
    directory = context.layout.run_directory(claimed.member)
    compiled = host_cache.use_compiled(context.layout.compile_cache / claimed.version)
    await asyncio.to_thread(context.compiled.verify, compiled)
    order = StartOrder(
        claimed=claimed,
        compile_cache=str(compiled),
        checkpoints=str(context.checkpoints),
        takeover_s=context.registration.answer.takeover_s,
        time_scale=context.registration.answer.time_scale,
        alive_at=context.registration.alive_at,
        boot_id=boot_id(),
        claimed_at=started.claimed_at,
        complete_at=started.complete_at,
        unpacked_at=started.unpacked_at,
        location=context.location,
        spool_bytes=context.spool_bytes,
        has_key=context.keys.find(claimed.member) is not None,
    )
    directory.write_order(order)
    await context.launcher.start(claimed.member, directory.path)


def ending_before_start(reason: EndReason, message: str) -> Ending:
    """Of a member that has no process, and gets none."""
    return Ending(reason=reason, message=message[:8_000], last_seq=0, ended_at=now(), devices_released=True)
