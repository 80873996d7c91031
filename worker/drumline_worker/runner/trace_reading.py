"""Reads what jax.profiler wrote: which operations each device did, and what its time went into. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from drumline.contracts.profiles import MAX_LANES, MAX_OPERATION_NAME, MAX_OPERATION_NAMES, MAX_OPERATIONS

MAX_EVENTS = 200_000
"""Read of one trace; some 0.4 s of the reading thread."""

_DEVICE_PLANE = re.compile(r"^/device:(?:GPU|TPU):(\d+)")
_HOST_PLANE = "/host:CPU"
_OPERATION_LINES = ("XLA Ops", "Async XLA Ops")
"""Of a TPU; of a GPU the lines of its streams."""
_COLLECTIVE = re.compile(
    r"(all[-_]reduce|all[-_]gather|all[-_]to[-_]all|ragged[-_]all[-_]to[-_]all|reduce[-_]scatter|psum[-_]scatter"
    r"|collective[-_]permute|collective[-_]broadcast|ppermute|pbroadcast|psum|pmax|pmin)"
    r"([-_](start|done|invariant))*[.\d]*$"
)
"""What XLA, or JAX by the primitive, calls an exchange between devices."""
_RENDEZVOUS = "Rendezvous"
"""Where a CPU device waits in a collective for the others, whatever that is called."""


class _Event(NamedTuple):
    begin: int
    end: int
    name: str


class _Piece(NamedTuple):
    """A stretch of one line that belongs to one operation, and to none within that."""

    begin: int
    end: int
    is_collective: bool


@dataclass(slots=True)
class _Device:
    """`lines` are those of one thread, stream or unit each, in which events are nested and never cross."""

    lines: dict[tuple[str, str], list[_Event]] = field(default_factory=dict)
    waits: dict[tuple[str, str], list[tuple[int, int]]] = field(default_factory=dict)


class TracedDevice(NamedTuple):
    """A device of this process: what JAX, its platform's planes of a trace, and we call it."""

    id: int
    ordinal: int
    name: str


class TraceTooLargeError(Exception):
    """A trace has more events than are read."""


def read_trace(data: Any, devices: Sequence[TracedDevice]) -> dict[str, Any]:  # Any: ProfileData, without types; JSON
    """Times and lanes as `drumline.contracts.profiles.TracedCall` has them. Raises TraceTooLargeError."""
    found = _collect(data, devices)
    events = [event for device in found.values() for line in device.lines.values() for event in line]
    if not events:
        return {"unmeasured": "platform"}
    first, last = min(event.begin for event in events), max(event.end for event in events)
    collectives = {event.name for event in events if _COLLECTIVE.match(event.name) or _is_nccl(event.name)}
    for device in found.values():
        for key, line in device.lines.items():
            collectives |= _waited_in(line, device.waits.get(key, ()))
    lanes = {device.name: found.get(device.name, _Device()) for device in devices[:MAX_LANES]}
    times = [
        {
            "device": name,
            **_times(device, collectives, last - first),
            "operations": sum(map(len, device.lines.values())),
        }
        for name, device in lanes.items()
    ]
    content = {**_lanes(lanes, collectives, first), "devices_left_out": max(0, len(devices) - MAX_LANES)}
    return {"span_ns": last - first, "devices": times, "content": content}


def _collect(data: Any, devices: Sequence[TracedDevice]) -> dict[str, _Device]:
    found: dict[str, _Device] = {}
    by_ordinal = {device.ordinal: device.name for device in devices}
    by_id = {device.id: device.name for device in devices}
    left = MAX_EVENTS
    for plane in data.planes:
        of_plane = _DEVICE_PLANE.match(plane.name)
        if of_plane is None and plane.name != _HOST_PLANE:
            continue
        for line in plane.lines:
            if of_plane is not None and not (line.name.startswith("Stream") or line.name in _OPERATION_LINES):
                continue
            events = list(islice(line.events, left + 1))
            left -= len(events)
            if left < 0:
                raise TraceTooLargeError
            if of_plane is None:
                _take_thread(found, by_id, line.name, events)
            elif (name := by_ordinal.get(int(of_plane[1]))) is not None:
                device = found.setdefault(name, _Device())
                device.lines[plane.name, line.name] = [_event(event, _operation(event)) for event in events]
    return found


def _operation(event: Any) -> str:
    """As XLA calls it where the event says so, else its kernel."""
    named = None if _is_nccl(event.name) else next((value for name, value in event.stats if name == "hlo_op"), None)
    return str(named or event.name)


def _is_nccl(kernel: str) -> bool:
    """Whether it is a kernel of the library that GPUs exchange by."""
    return "nccl" in kernel.lower()


def _event(event: Any, name: str) -> _Event:
    begin = int(event.start_ns)
    return _Event(begin, begin + int(event.duration_ns), name)


def _take_thread(found: dict[str, _Device], devices: Mapping[int, str], line: str, events: Sequence[Any]) -> None:
    """Of a thread of the host what it did for CPU devices, by their ids, which take turns on it."""
    waits = []
    names = set()
    for event in events:
        if event.name == _RENDEZVOUS:
            waits.append((int(event.start_ns), int(event.start_ns + event.duration_ns)))
            continue
        if event.name.startswith("end: "):
            continue
        stats: dict[str, Any] = dict(event.stats)
        name = devices.get(int(stats.get("device_ordinal", -1)))
        if "hlo_op" in stats and name is not None:
            names.add(name)
            lines = found.setdefault(name, _Device()).lines
            lines.setdefault((_HOST_PLANE, line), []).append(_event(event, str(stats["hlo_op"])))
    for name in names:
        found[name].waits[_HOST_PLANE, line] = waits


def _waited_in(line: Sequence[_Event], waits: Iterable[tuple[int, int]]) -> set[str]:
    """The innermost operations of a thread in which it waited for other devices."""
    names = set()
    for begin, end in waits:
        around = [event for event in line if event.begin <= begin and end <= event.end]
        if around:
            names.add(min(around, key=lambda event: event.end - event.begin).name)
    return names


def _pieces(line: Sequence[_Event], collectives: set[str]) -> Iterator[_Piece]:
    """A line cut so that each moment belongs to the innermost operation."""
    open_events: list[_Event] = []
    at = 0
    for event in [*sorted(line, key=lambda event: (event.begin, -event.end)), None]:
        while open_events and (event is None or open_events[-1].end <= event.begin):
            ended = open_events.pop()
            if ended.end > at:
                yield _Piece(at, ended.end, ended.name in collectives)
                at = ended.end
        if event is not None:
            if open_events and event.begin > at:
                yield _Piece(at, event.begin, open_events[-1].name in collectives)
            open_events.append(event)
            at = max(at, event.begin)


def _times(device: _Device, collectives: set[str], span: int) -> dict[str, int]:
    pieces = [piece for line in device.lines.values() for piece in _pieces(line, collectives)]
    computing = _length(piece for piece in pieces if not piece.is_collective)
    collective = _length(piece for piece in pieces if piece.is_collective)
    busy = _length(pieces)
    return {
        "computing_ns": computing,
        "collective_ns": collective,
        "both_ns": computing + collective - busy,
        "idle_ns": span - busy,
    }


def _length(pieces: Iterable[_Piece]) -> int:
    """Of the time that at least one of them covers."""
    total, until = 0, 0
    for begin, end, _ in sorted(pieces):
        if end > until:
            total += end - max(begin, until)
            until = end
    return total


def _lanes(devices: Mapping[str, _Device], collectives: set[str], first: int) -> dict[str, Any]:
    """Of too many operations the longest, and of too many names those that take longest."""
    every = [(name, event) for name, device in devices.items() for line in device.lines.values() for event in line]
    kept = sorted(every, key=lambda one: one[1].begin - one[1].end)[:MAX_OPERATIONS]
    names = [*dict.fromkeys(event.name for _, event in kept)][:MAX_OPERATION_NAMES]
    number_of = {name: number for number, name in enumerate(names)}
    shown: dict[str, list[_Event]] = {name: [] for name in devices}
    for name, event in kept:
        if event.name in number_of:
            shown[name].append(event)
    lanes = []
    for name, events in shown.items():
        events.sort(key=lambda event: (event.begin, -event.end))
        lanes.append(
            {
                "device": name,
                "begins_ns": [event.begin - first for event in events],
                "durations_ns": [event.end - event.begin for event in events],
                "operations": [number_of[event.name] for event in events],
            }
        )
    operations = [{"name": _shown_name(name), "is_collective": name in collectives} for name in names]
    return {"operations": operations, "lanes": lanes, "left_out": len(every) - sum(map(len, shown.values()))}


def _shown_name(name: str) -> str:
    """Plain text of a length that a batch of telemetry has room for."""
    plain = "".join(letter if " " <= letter <= "~" else "?" for letter in name[:MAX_OPERATION_NAME])
    return plain or "?"
