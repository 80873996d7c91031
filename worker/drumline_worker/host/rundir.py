"""The run directory of one member: what the agent, the shim and a restarted agent find there.

```
<data dir>/runs/<member id>/   0700
    order.json     what to run, written by the agent before the launch
    shim.json     pid and start time of the shim; empty where its start was revoked
    shim.sock     the shim's listening socket
    spool/        telemetry not yet acknowledged
    end.json      how it ended; its presence means that the end is final
    program/      the extracted bundle
    artifacts/    what the program keeps for its run, by digest, until the server has it
    scratch/      working directory, HOME and TMPDIR of the program
```
"""

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, Field, ValidationError

from drumline.contracts.base import Contract, Text, Timestamp
from drumline.contracts.heartbeats import LeaseTimes, TimeScale
from drumline.contracts.reasons import EndReason
from drumline.contracts.worker_api import Claimed

SPOOL_BYTES = 4 * 1024**3
"""Telemetry of one member that waits on disk, unless the worker is told otherwise; beyond it the program waits."""
Model = TypeVar("Model", bound=BaseModel)


class ChipOrder(Contract):
    """Of a plan for chips that are not there: which, and the compiler that knows them."""

    on: str
    library: str
    """Path of libtpu.so; of GPUs the folder with the packages of their compiler."""
    compiler: str
    """What the plan calls it, with its version."""
    batch_parameter: str | None = None


class StartOrder(Contract):
    """Everything that a shim needs to run its member."""

    claimed: Claimed
    compile_cache: str
    """Directory of the persistent compilation cache of this job version."""
    checkpoints: str
    """Directory of checkpoints, one in it for each run."""
    takeover_s: float
    time_scale: TimeScale = 1.0
    alive_at: float
    """CLOCK_BOOTTIME at which the last acknowledged heartbeat was sent."""
    boot_id: str
    claimed_at: float | None = None
    """CLOCK_BOOTTIME of the claim; then when the gang was complete, and when the program was unpacked."""
    complete_at: float | None = None
    unpacked_at: float | None = None
    location: str = ""
    """Of the worker (`drumline_worker.agent.identity`): it tells a copied directory from its original."""
    spool_bytes: int = SPOOL_BYTES
    has_key: bool = False
    """Whether it was claimed with a key, which the agent keeps: without it nothing can be said of the member."""
    probe_steps: int | None = None
    """Set for a probe: how many steps to look at. What `main` returns is not kept then, but what it did."""
    chips: ChipOrder | None = None
    """Set for a probe that compiles for chips that are not there."""

    @property
    def lease(self) -> LeaseTimes:
        """What its shim goes by when the server falls silent."""
        return LeaseTimes(self.takeover_s, self.time_scale)


class ShimIdentity(Contract):
    """Names the shim's process for good."""

    pid: int
    start_ticks: int
    started_at: Timestamp


class Ending(Contract):
    """How the member ended, as far as the host can know."""

    reason: EndReason
    message: Annotated[Text, Field(max_length=8_000)] = ""
    exit_code: int | None = None
    signal: int | None = None
    last_seq: int
    ended_at: Timestamp
    devices_released: bool
    output_bytes: int | None = None
    """How much the program has written; None where its shim died without saying so."""


class RunDirectory:
    """Paths and files of one member."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.spool = path / "spool"
        self.program = path / "program"
        self.scratch = path / "scratch"
        self.artifacts = path / "artifacts"

    def create(self) -> None:
        """Makes the directory and its parts, all 0700. Raises FileExistsError if the member was started before."""
        for directory in (self.path, self.spool, self.program, self.scratch):
            directory.mkdir(mode=0o700)

    def remove(self) -> None:
        """Deletes everything; what is left of a half-deleted directory counts as no member."""
        self._unlink("order.json")
        shutil.rmtree(self.path, ignore_errors=True)

    def write_order(self, order: StartOrder) -> None:
        """Leaves the start order for the shim."""
        self._write("order.json", order)

    def order(self) -> StartOrder:
        """Raises FileNotFoundError or ValueError when there is no whole start order."""
        return StartOrder.model_validate_json((self.path / "order.json").read_bytes())

    def begin(self, identity: ShimIdentity) -> bool:
        """Says which process is the shim. False for one that is not to begin: its start was revoked."""
        draft = self.path / f".shim.{identity.pid}"
        draft.write_text(identity.model_dump_json())
        try:
            # A link fails where the name is taken, which a rename would replace: of a shim that begins and an agent
            # that revokes, one wins. The file is whole when its name appears.
            os.link(draft, self.path / "shim.json")
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        return True

    def revoke_start(self) -> bool:
        """Makes sure that no shim begins any more; False if one has. The first to create the file decides."""
        try:
            os.close(os.open(self.path / "shim.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            return self.shim() is None
        except FileNotFoundError:
            return True  # nor is there a directory
        return True

    def shim(self) -> ShimIdentity | None:
        """The shim's process, or None before it started."""
        return self._read("shim.json", ShimIdentity)

    def write_ending(self, ending: Ending) -> None:
        """Makes the end durable: on disk, with its name, before anybody hears of it."""
        self._write("end.json", ending, durable=True)

    def read_ending(self) -> Ending | None:
        """How it ended; None while it runs, or where the disk has lost it."""
        return self._read("end.json", Ending)

    def listen(self) -> socket.socket:
        """The shim's listening socket."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with _short_address(self.path, "shim.sock") as address:
            listener.bind(address)
        listener.listen(8)
        return listener

    def connect(self) -> socket.socket:
        """A connection to the shim, not blocking from now on; raises OSError when nobody listens."""
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with _short_address(self.path, "shim.sock") as address:
                link.connect(address)
        except OSError:
            link.close()
            raise
        link.setblocking(False)
        return link

    def is_attended(self) -> bool:
        """Whether a shim listens."""
        try:
            self.connect().close()
        except OSError:
            return False
        return True

    def _unlink(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def _read(self, name: str, model: type[Model]) -> Model | None:
        try:
            return model.model_validate_json((self.path / name).read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    def _write(self, name: str, model: BaseModel, durable: bool = False) -> None:
        """Readers see the old file or the whole new one, never a part."""
        draft = self.path / f".{name}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(model.model_dump_json().encode())
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.rename(draft, self.path / name)
        if durable:
            sync_directory(self.path)


def sync_directory(path: Path) -> None:
    """Makes the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _short_address(directory: Path, file: str) -> Iterator[str]:
    """Addresses a socket through its directory's descriptor: a socket's path may have only 107 bytes."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{file}"
    finally:
        os.close(descriptor)
