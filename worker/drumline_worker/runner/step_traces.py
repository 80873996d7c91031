"""Traces calls of `strategy.run` by jax.profiler, reads what it wrote, and sends it as events of the run."""

import io
import shutil
import sys
import tempfile
import threading
import warnings
import zipfile
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jax

from drumline.contracts.profiles import MAX_PROFILE_BYTES, MAX_PROFILES, MAX_PROFILES_BYTES, MAX_TRACE_S
from drumline_worker.runner.channel import Channel
from drumline_worker.runner.trace_reading import TracedDevice, TraceTooLargeError, read_trace

MAX_READ_BYTES = 64 * 1024 * 1024
"""Of what jax.profiler wrote of one call; what is larger is not opened."""
_FAILURES = (RuntimeError, ValueError, OSError)
"""What jax.profiler raises: a trace is on already or not at all, a disk is full, it wrote what it can't read."""


@dataclass(frozen=True, slots=True)
class TracedSteps:
    """What was traced. Its directory belongs to whoever sends it."""

    steps: range
    directory: Path
    is_cut: bool


class StepTraces:
    """Which calls are traced: the last of each `every`, so that no sampled reductions fall in it, and never the first.

    `on_traced` hears of each on the program's thread, `on_busy` that a trace was on that is not ours.
    """

    def __init__(
        self,
        every: int,
        channel: Channel,
        *,
        on_traced: Callable[[TracedSteps], None],
        on_busy: Callable[[], None],
    ) -> None:
        prepare_reading()  # while the program has not begun: filters of warnings belong to all threads
        self._every = every
        self._channel = channel
        self._on_traced = on_traced
        self._on_busy = on_busy
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
        directory = Path(tempfile.mkdtemp(prefix="drumline-trace-"))
        try:
            jax.profiler.start_trace(str(directory), profiler_options=_options())
        except _FAILURES as error:
            shutil.rmtree(directory, ignore_errors=True)
            self._skip(error)
            yield
            return
        self._taken += 1
        stop = _Stop()
        timer = threading.Timer(MAX_TRACE_S, stop, (True,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            stop(False)
            self._on_traced(TracedSteps(steps, directory, stop.was_early))

    def _skip(self, error: Exception) -> None:
        self._on_busy()
        if self._is_news(text := f"drumline: steps are not traced while jax.profiler says: {error}\n"):
            sys.stderr.write(text)

    def _is_news(self, text: str) -> bool:
        is_new = text not in self._told and len(self._told) < 10
        self._told.add(text)
        return is_new


class _Stop:
    """Ends a trace once: the call is over, or takes too long."""

    def __init__(self) -> None:
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
        finally:
            shutil.rmtree(traced.directory, ignore_errors=True)
        which = {"step": step, "call": traced.steps.start, "steps": len(traced.steps)}
        self._channel.send("profile", **which, **fields, **file)
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


def _sampled(fields: Mapping[str, Any], step: int, steps: int) -> dict[str, Any]:
    """Means over devices and steps, in milliseconds."""
    if (unknown := fields.get("unmeasured")) is not None:
        return {"unknown": unknown}
    devices = fields["devices"]
    names = ("computing", "collective", "both", "idle")
    means = {f"{name}_ms": sum(each[f"{name}_ns"] for each in devices) / len(devices) / steps / 1e6 for name in names}
    return {"step": step, "span_ms": fields["span_ns"] / steps / 1e6, **means}
