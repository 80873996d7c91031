"""Reads what jax.profiler wrote: which operations each device did, and what its time went into. Pure."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

from drumline.contracts.profiles import MAX_LANES, MAX_OPERATION_NAME, MAX_OPERATION_NAMES, MAX_OPERATIONS
from drumline_worker.runner.traced_operations import Kind, TracedOperation, by_instruction, by_kernel, by_name

MAX_EVENTS = 200_000
"""Read of one trace; up to some 2 s of the reading thread."""
_MAX_SPAN_NS = 2**53
"""As in `drumline.contracts.profiles`."""

_DEVICE_PLANE = re.compile(r"/device:(GPU|TPU):(\d+)$")
"""Those of the SparseCores of a TPU have names that continue."""
_HOST_PLANE = "/host:CPU"
_OPERATIONS, _IN_FLIGHT, _SYNCHRONIZATION = "XLA Ops", "Async XLA Ops", "XLA TraceMe"
"""Lines of a TPU: what the core does, from start to done what it does not wait for, and among others `_BARRIER`."""
_BARRIER = "barrier-cores"
"""Where a TPU waits for all others, in none of its operations: as seen, before the one exchange of a program."""
_RENDEZVOUS = "Rendezvous"
"""Where a CPU device waits in a collective for the others, whatever that is called."""


class _Event(NamedTuple):
    begin: int
    end: int
    name: str
    kind: Kind


def _outermost_first(event: _Event) -> tuple[int, int]:
    return event.begin, -event.end


class _Piece(NamedTuple):
    """A stretch of one line that belongs to one operation, and to none within that."""

    begin: int
    end: int
    kind: Kind


@dataclass(slots=True)
class _Device:
    """`lines` are those of one thread, stream or unit each, in which events are nested and never cross.

    `in_flight` are operations of a TPU from their start to their done, which cross.
    """

    lines: dict[tuple[str, str], list[_Event]] = field(default_factory=dict)
    waits: dict[tuple[str, str], list[tuple[int, int]]] = field(default_factory=dict)
    in_flight: list[_Event] = field(default_factory=list)


class TracedDevice(NamedTuple):
    """A device of this process: what JAX, its platform's planes of a trace, and we call it."""

    id: int
    ordinal: int
    name: str


class TraceTooLargeError(Exception):
    """A trace has more events than are read."""


def read_trace(data: Any, devices: Sequence[TracedDevice]) -> dict[str, Any]:  # Any: ProfileData, without types; JSON
    """Times and lanes as `drumline.contracts.profiles.TracedCall` has them.

    Raises TraceTooLargeError, and ValueError where what the trace says can't be.
    """
    events_of = _Events()
    found = _read_accelerators(data, devices, events_of) or _read_threads(data, devices, events_of)
    events = [event for device in found.values() for line in device.lines.values() for event in line]
    if not events:
        return {"unmeasured": "platform"}
    first, last = min(event.begin for event in events), max(event.end for event in events)
    if last - first >= _MAX_SPAN_NS:
        raise ValueError(f"a trace of {last - first} ns; it has less than {_MAX_SPAN_NS}")
    lanes = {device.name: found.get(device.name, _Device()) for device in devices[:MAX_LANES]}
    times = [
        {"device": name, **_times(device, last - first), "operations": sum(1 for _ in _shown(device))}
        for name, device in lanes.items()
    ]
    content = {**_lanes(lanes, first), "devices_left_out": max(0, len(devices) - MAX_LANES)}
    return {"span_ns": last - first, "devices": times, "content": content}


class _Events:
    """Those of lines, until there are too many."""

    def __init__(self) -> None:
        self._left = MAX_EVENTS

    def __call__(self, line: Any) -> list[Any]:
        events = list(islice(line.events, self._left + 1))
        self._left -= len(events)
        if self._left < 0:
            raise TraceTooLargeError
        return events


def _read_accelerators(data: Any, devices: Sequence[TracedDevice], events_of: _Events) -> dict[str, _Device]:
    """By the planes of devices, if there are any that have operations; the host's are many and not needed then."""
    found: dict[str, _Device] = {}
    names = {device.ordinal: device.name for device in devices}
    named = cache(by_instruction)  # there are far fewer instructions than events, and their texts are long
    for plane in data.planes:
        of_plane = _DEVICE_PLANE.match(plane.name)
        name = None if of_plane is None else names.get(int(of_plane[2]))
        if of_plane is None or name is None:
            continue
        device = _Device()
        for line in plane.lines:
            if of_plane[1] == "TPU":
                _take_unit(device, line, events_of, named)
            elif line.name.startswith("Stream"):
                device.lines[plane.name, line.name] = [_event(event, _of_gpu(event)) for event in events_of(line)]
        if any(device.lines.values()):
            found[name] = device
    _add_in_flight(found.values())
    return found


def _take_unit(device: _Device, line: Any, events_of: _Events, named: Callable[[str], TracedOperation]) -> None:
    """Of a line of a TPU what tells what its time goes into."""
    if line.name == _OPERATIONS:
        device.lines["", line.name] = [_event(event, named(event.name)) for event in events_of(line)]
    elif line.name == _IN_FLIGHT:
        device.in_flight = [_event(event, named(event.name)) for event in events_of(line)]
    elif line.name == _SYNCHRONIZATION:
        wait = TracedOperation(_BARRIER, Kind.COLLECTIVE)
        device.lines["", line.name] = [_event(event, wait) for event in events_of(line) if event.name == _BARRIER]


def _add_in_flight(devices: Iterable[_Device]) -> None:
    """Counts collectives from start to done where all devices have that, as one that has it waits no longer.

    The profiler has been seen to write it of one of four chips.
    """
    if all(device.in_flight for device in devices):
        for device in devices:
            device.lines["", _IN_FLIGHT] = [event for event in device.in_flight if event.kind is Kind.COLLECTIVE]


def _of_gpu(event: Any) -> TracedOperation:
    operation = next((value for name, value in event.stats if name == "hlo_op"), None)
    return by_kernel(event.name, str(operation) if operation else None)


def _event(event: Any, operation: TracedOperation) -> _Event:
    begin, duration = int(event.start_ns), int(event.duration_ns)
    if duration < 0:
        raise ValueError(f"{operation.name[:MAX_OPERATION_NAME]} takes {duration} ns")
    return _Event(begin, begin + duration, *operation)


def _read_threads(data: Any, devices: Sequence[TracedDevice], events_of: _Events) -> dict[str, _Device]:
    """By the host's threads what they did for CPU devices, by their ids, which take turns on them."""
    found: dict[str, _Device] = {}
    names = {device.id: device.name for device in devices}
    for plane in data.planes:
        if plane.name == _HOST_PLANE:
            for line in plane.lines:
                _take_thread(found, names, line.name, events_of(line))
    waited: set[str] = set()
    for device in found.values():
        for key, line in device.lines.items():
            waited |= _waited_in(line, device.waits.get(key, ()))
    for device in found.values():
        for line in device.lines.values():
            line[:] = [event._replace(kind=Kind.COLLECTIVE) if event.name in waited else event for event in line]
    return found


def _take_thread(found: dict[str, _Device], devices: Mapping[int, str], line: str, events: Sequence[Any]) -> None:
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
            lines.setdefault((_HOST_PLANE, line), []).append(_event(event, by_name(str(stats["hlo_op"]))))
    for name in names:
        found[name].waits[_HOST_PLANE, line] = waits


def _waited_in(line: Sequence[_Event], waits: Iterable[tuple[int, int]]) -> set[str]:
    """The innermost operations of a thread in which it waited for other devices."""
    names = set()
    open_events: list[_Event] = []
    coming = iter([*sorted(line, key=_outermost_first), None])
    event = next(coming)
    for begin, end in sorted(waits):
        while event is not None and event.begin <= begin:
            while open_events and open_events[-1].end <= event.begin:
                open_events.pop()
            open_events.append(event)
            event = next(coming)
        while open_events and open_events[-1].end <= begin:
            open_events.pop()
        around = next((one for one in reversed(open_events) if end <= one.end), None)
        if around is not None:
            names.add(around.name)
    return names


def _pieces(line: Sequence[_Event]) -> Iterator[_Piece]:
    """A line cut so that each moment belongs to the innermost operation."""
    open_events: list[_Event] = []
    at = 0
    for event in [*sorted(line, key=_outermost_first), None]:
        while open_events and (event is None or open_events[-1].end <= event.begin):
            ended = open_events.pop()
            if ended.end > at:
                yield _Piece(at, ended.end, ended.kind)
                at = ended.end
        if event is not None:
            if open_events and event.begin > at:
                yield _Piece(at, event.begin, open_events[-1].kind)
            open_events.append(event)
            at = max(at, event.begin)


def _times(device: _Device, span: int) -> dict[str, int]:
    pieces = [piece for line in device.lines.values() for piece in _pieces(line)]
    computing = _length(piece for piece in pieces if piece.kind is Kind.COMPUTING)
    collective = _length(piece for piece in pieces if piece.kind is Kind.COLLECTIVE)
    busy = _length(piece for piece in pieces if piece.kind is not Kind.WAITING)
    return {
        "computing_ns": computing,
        "collective_ns": collective,
        "both_ns": computing + collective - busy,
        "idle_ns": span - busy,
    }


def _length(pieces: Iterable[_Piece]) -> int:
    """Of the time that at least one of them covers."""
    total, until = 0, 0
    for begin, end, _ in sorted(pieces, key=attrgetter("begin")):
        if end > until:
            total += end - max(begin, until)
            until = end
    return total


def _shown(device: _Device) -> Iterator[_Event]:
    return (event for line in device.lines.values() for event in line if event.kind is not Kind.WAITING)


def _lanes(devices: Mapping[str, _Device], first: int) -> dict[str, Any]:
    """Of too many operations the longest, and of too many names those that take longest."""
    every = [(name, event) for name, device in devices.items() for event in _shown(device)]
    kept = sorted(every, key=lambda one: one[1].begin - one[1].end)[:MAX_OPERATIONS]
    names = [*dict.fromkeys(event[2:] for _, event in kept)][:MAX_OPERATION_NAMES]
    number_of = {name: number for number, name in enumerate(names)}
    shown: dict[str, list[_Event]] = {name: [] for name in devices}
    for name, event in kept:
        if event[2:] in number_of:
            shown[name].append(event)
    lanes = []
    for name, events in shown.items():
        events.sort(key=_outermost_first)
        lanes.append(
            {
                "device": name,
                "begins_ns": [event.begin - first for event in events],
                "durations_ns": [event.end - event.begin for event in events],
                "operations": [number_of[event[2:]] for event in events],
            }
        )
    operations = [{"name": _shown_name(name), "is_collective": kind is Kind.COLLECTIVE} for name, kind in names]
    return {"operations": operations, "lanes": lanes, "left_out": len(every) - sum(map(len, shown.values()))}


def _shown_name(name: str) -> str:
    """Plain text of a length that a batch of telemetry has room for."""
    plain = "".join(letter if " " <= letter <= "~" else "?" for letter in name[:MAX_OPERATION_NAME])
    return plain or "?"
