"""Traces calls of `strategy.run` by jax.profiler, reads what it wrote, and sends it as events of the run.

A trace that is complete has a mark beside it, so that one whose program is dead by then can still be read.
"""

import io
import shutil
import socket
import sys
import tempfile
import threading
import warnings
import zipfile
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import jax
from pydantic import Field, ValidationError

from drumline.contracts.base import Contract
from drumline.contracts.profiles import MAX_PROFILE_BYTES, MAX_PROFILES, MAX_PROFILES_BYTES, MAX_TRACE_S
from drumline_worker.host.rundir import RunDirectory, StartOrder
from drumline_worker.host.tally import BegunTrace, Tally
from drumline_worker.runner.channel import Channel
from drumline_worker.runner.trace_reading import TracedDevice, TraceTooLargeError, read_trace

MAX_READ_BYTES = 64 * 1024 * 1024
"""Of what jax.profiler wrote of one call; what is larger is not opened."""
_FAILURES = (RuntimeError, ValueError, OSError)
"""What jax.profiler raises: a trace is on already or not at all, a disk is full, it wrote what it can't read."""


_PREFIX, _MARK = "drumline-trace-", ".json"
_MAX_MARK_BYTES = 1024 * 1024
_Number = Annotated[int, Field(ge=0, lt=2**53)]


class _Complete(Contract):
    """The mark of a trace, beside its directory: what whoever reads it has to know."""

    call: _Number
    steps: Annotated[int, Field(ge=1, lt=2**53)]
    is_cut: bool
    devices: tuple[TracedDevice, ...]


@dataclass(frozen=True, slots=True)
class TracedSteps:
    """What was traced. Its directory belongs to whoever sends it."""

    steps: range
    directory: Path
    is_cut: bool

    @property
    def mark(self) -> Path:
        """The file that is there once all of the trace is."""
        return self.directory.with_name(self.directory.name + _MARK)

    def remove(self) -> None:
        """Nobody reads it any more."""
        with suppress(OSError):
            self.mark.unlink(missing_ok=True)
        shutil.rmtree(self.directory, ignore_errors=True)


class StepTraces:
    """Which calls are traced: the last of each `every`, so that no sampled reductions fall in it, and never the first.

    On the program's thread `on_begun` hears of each that has begun, `on_traced` that it is over, and `on_busy` that a
    trace was on that is not ours. They are kept in `place` until they are sent; `devices`: those of this process.
    """

    def __init__(
        self,
        every: int,
        channel: Channel,
        *,
        on_traced: Callable[[TracedSteps], None],
        on_busy: Callable[[], None],
        on_begun: Callable[[range], None] = lambda _: None,
        place: Path | None = None,
        devices: Sequence[TracedDevice] = (),
    ) -> None:
        prepare_reading()  # while the program has not begun: filters of warnings belong to all threads
        self._every = every
        self._channel = channel
        self._on_traced = on_traced
        self._on_busy = on_busy
        self._on_begun = on_begun
        self._place = place
        self._devices = tuple(devices)
        self._began = False
        self._taken = 0
        self._told: set[str] = set()

    def wants(self, steps: range) -> bool:
        """Whether a call that does these steps is to be traced."""
        began, self._began = self._began, True  # the first call compiles
        if not began or steps.stop // self._every == steps.start // self._every:
            return False
        if self._taken == MAX_PROFILES:
            detail = (
                f"one process traces {MAX_PROFILES} calls of strategy.run; a greater record.profile_every spreads them"
            )
            if self._is_news(detail):
                self._channel.send("gap", what="profile", count=1, detail=f"after call {steps.start}: {detail}")
            return False
        return True

    @contextmanager
    def trace(self, steps: range) -> Iterator[None]:
        """Is around the call. Whatever becomes of the trace, the program continues."""
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=self._place))
        try:
            jax.profiler.start_trace(str(directory), profiler_options=_options())
        except _FAILURES as error:
            shutil.rmtree(directory, ignore_errors=True)
            self._skip(error)
            yield
            return
        self._taken += 1
        self._on_begun(steps)
        stop = _Stop(partial(self._mark, steps, directory))
        timer = threading.Timer(MAX_TRACE_S, stop, (True,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            stop(False)
            self._on_traced(TracedSteps(steps, directory, stop.was_early))

    def _mark(self, steps: range, directory: Path, is_cut: bool) -> None:
        complete = _Complete(call=steps.start, steps=len(steps), is_cut=is_cut, devices=self._devices)
        with suppress(OSError):  # the disk is full: read it is all the same, unless the program dies
            TracedSteps(steps, directory, is_cut).mark.write_text(complete.model_dump_json())

    def _skip(self, error: Exception) -> None:
        self._on_busy()
        if self._is_news(text := f"drumline: steps are not traced while jax.profiler says: {error}\n"):
            sys.stderr.write(text)

    def _is_news(self, text: str) -> bool:
        is_new = text not in self._told and len(self._told) < 10
        self._told.add(text)
        return is_new


class _Stop:
    """Ends a trace once: the call is over, or takes too long. `on_complete` is told which."""

    def __init__(self, on_complete: Callable[[bool], None]) -> None:
        self._on_complete = on_complete
        self._lock = threading.Lock()
        self._is_over = False
        self.was_early = False

    def __call__(self, early: bool) -> None:
        with self._lock:
            if self._is_over:
                return
            self._is_over, self.was_early = True, early
            with suppress(*_FAILURES):  # the files are missing then, which whoever reads them tells
                jax.profiler.stop_trace()
                self._on_complete(early)


_ONE_EVENT = bytes.fromhex("0a06 1a04 2202 0801")
"""An XSpace with a plane, in it a line, in it an event."""


@cache
def prepare_reading() -> list[type]:
    """The type by which an event is read, made by jaxlib and kept: Python 3.12 warns that it names no module.

    Where a program makes errors of warnings, that one would be raised within C++ code and abort the process.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        planes = jax.profiler.ProfileData.from_serialized_xspace(_ONE_EVENT).planes
        # Held by the cache, or it would be made again by who reads next.
        return [type(event.stats) for plane in planes for line in plane.lines for event in line.events]


def _options() -> Any:  # Any: jax.profiler has no types
    """Operations and what sends them; no Python calls, and no programs, whose text is larger than all else."""
    options = jax.profiler.ProfileOptions()
    options.host_tracer_level = 1
    options.python_tracer_level = 0
    options.enable_hlo_proto = False
    return options


class ProfileReports:
    """Reads and sends traces, on the telemetry's thread. `devices`: those of this process."""

    def __init__(self, channel: Channel, devices: Sequence[TracedDevice], rank: int) -> None:
        self._channel = channel
        self._devices = devices
        self._rank = rank
        self._bytes = 0

    def send(self, traced: TracedSteps, step: int) -> dict[str, Any]:  # Any: JSON, as `throughput.SampledTimes` has it
        """What a step of it took, or under `unknown` why nobody knows."""
        try:
            fields = self._read(traced)
            file = self._pack(traced, step)
            which = {"step": step, "call": traced.steps.start, "steps": len(traced.steps)}
            self._channel.send("profile", **which, **fields, **file)
        finally:  # only now: of a program that is killed before, it is still there to be read
            traced.remove()
        return _sampled(fields, step, len(traced.steps))

    def _read(self, traced: TracedSteps) -> dict[str, Any]:
        try:
            (path,) = traced.directory.rglob("*.xplane.pb")
            if path.stat().st_size > MAX_READ_BYTES:
                return {"unmeasured": "unreadable"}
            data = jax.profiler.ProfileData.from_file(str(path))
            fields = read_trace(data, self._devices)
        except (*_FAILURES, TraceTooLargeError):
            return {"unmeasured": "unreadable"}
        return {**fields, "unmeasured": "long"} if traced.is_cut else fields

    def _pack(self, traced: TracedSteps, step: int) -> dict[str, Any]:
        """The files under the names that TensorBoard looks for."""
        packed = io.BytesIO()
        try:
            files = [path for path in sorted(traced.directory.rglob("*")) if path.is_file()]
            if not files or sum(path.stat().st_size for path in files) > MAX_READ_BYTES:
                return {"file_left_out": "large" if files else "unreadable"}
            with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
                for path in files:
                    kind = path.name.partition(".")[2]  # after the host's name: xplane.pb, trace.json.gz
                    archive.write(path, f"plugins/profile/step_{step}/rank_{self._rank}.{kind}")
        except OSError:
            return {"file_left_out": "unreadable"}
        content = packed.getvalue()
        if len(content) > MAX_PROFILE_BYTES:
            return {"file_left_out": "large", "file_bytes": len(content)}
        if self._bytes + len(content) > MAX_PROFILES_BYTES:
            return {"file_left_out": "full", "file_bytes": len(content)}
        self._bytes += len(content)
        return {"file": b64encode(content).decode(), "file_bytes": len(content)}


def send_left(
    left: Sequence[BegunTrace], directory: RunDirectory, order: StartOrder, link: socket.socket, stacks: int, _: Tally
) -> int:
    """Sends those of the traces of a dead program that are complete on its disk; the life of a process of its own.

    That disk is the program's: what it wrote there costs this process at most, and its shim a few seconds.
    """
    prepare_reading()
    channel, rank = Channel(link, stacks), order.claimed.rendezvous.rank
    complete = {one.call: (one, path) for one, path in _find_complete(directory.scratch)}
    for call, step in left:
        if call in complete:
            one, path = complete[call]
            traced = TracedSteps(range(call, call + one.steps), path, one.is_cut)
            ProfileReports(channel, one.devices, rank).send(traced, step)
    return 0


def _find_complete(place: Path) -> Iterator[tuple[_Complete, Path]]:
    for mark in islice(place.glob(f"{_PREFIX}*{_MARK}"), MAX_PROFILES):
        with suppress(OSError, ValidationError), mark.open("rb") as file:
            yield _Complete.model_validate_json(file.read(_MAX_MARK_BYTES)), mark.with_suffix("")


def _sampled(fields: Mapping[str, Any], step: int, steps: int) -> dict[str, Any]:
    """Means over devices and steps, in milliseconds."""
    if (unknown := fields.get("unmeasured")) is not None:
        return {"unknown": unknown}
    devices = fields["devices"]
    names = ("computing", "collective", "both", "idle")
    means = {f"{name}_ms": sum(each[f"{name}_ns"] for each in devices) / len(devices) / steps / 1e6 for name in names}
    return {"step": step, "span_ms": fields["span_ns"] / steps / 1e6, **means}
