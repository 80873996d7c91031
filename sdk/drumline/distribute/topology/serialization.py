"""Topologies as bytes: the wire format of TensorFlow's ``TopologyProto``, which a slice's system tells.

Fields 1 to 4 hold the mesh's shape, the tasks, the devices of a task and all coordinates in a row, as varints. Others,
such as the hardware's features, are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from drumline.distribute.errors import InvalidValueError

#: 2**16 devices with four coordinates of up to three bytes each, and room for what is skipped: half a second.
MAX_BYTES = 2**20

_MESH_SHAPE, _NUM_TASKS, _NUM_DEVICES_PER_TASK, _DEVICE_COORDINATES = 1, 2, 3, 4
_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_VARINT_BYTES = 10
_FIX = "pass what Topology.serialized() gave"


@dataclass
class TopologyFields:
    """What the bytes say, unchecked. ``device_coordinates`` is flat: [task, device, axis] in that order."""

    mesh_shape: list[int] = field(default_factory=list)
    num_tasks: int = 0
    num_devices_per_task: int = 0
    device_coordinates: list[int] = field(default_factory=list)


def encode(fields: TopologyFields) -> bytes:
    """The bytes that TensorFlow's ``SerializeToString`` gives for the same topology."""
    return b"".join(
        (
            _pack(_MESH_SHAPE, fields.mesh_shape),
            _number(_NUM_TASKS, fields.num_tasks),
            _number(_NUM_DEVICES_PER_TASK, fields.num_devices_per_task),
            _pack(_DEVICE_COORDINATES, fields.device_coordinates),
        )
    )


def decode(serialized: bytes) -> TopologyFields:
    """The fields of a serialized topology; InvalidValueError for bytes that are none."""
    if len(serialized) > MAX_BYTES:
        raise InvalidValueError(f"a serialized topology of {len(serialized)} bytes is longer than {MAX_BYTES}; {_FIX}")
    fields = TopologyFields()
    for number, values in _fields(serialized):
        if number == _MESH_SHAPE:
            fields.mesh_shape += values
        elif number == _DEVICE_COORDINATES:
            fields.device_coordinates += values
        elif number == _NUM_TASKS and values:
            fields.num_tasks = values[-1]
        elif number == _NUM_DEVICES_PER_TASK and values:
            fields.num_devices_per_task = values[-1]
    return fields


def _fields(serialized: bytes) -> Iterator[tuple[int, list[int]]]:
    """Each field's number with its values; none for a field that holds no varints."""
    position = 0
    while position < len(serialized):
        tag, position = _varint(serialized, position)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT and number:
            value, position = _varint(serialized, position)
            yield number, [_as_signed(value)]
        elif kind == _LENGTH_DELIMITED and number:
            length, start = _varint(serialized, position)
            position = _skip(serialized, start, length)
            if number in (_MESH_SHAPE, _DEVICE_COORDINATES):
                yield number, _unpack(serialized[start:position])
        elif kind in (_FIXED64, _FIXED32) and number:
            position = _skip(serialized, position, 8 if kind == _FIXED64 else 4)
        else:
            raise InvalidValueError(f"the bytes are no serialized topology: byte {position - 1} is no field; {_FIX}")


def _unpack(packed: bytes) -> list[int]:
    values, position = [], 0
    while position < len(packed):
        value, position = _varint(packed, position)
        values.append(_as_signed(value))
    return values


def _varint(serialized: bytes, position: int) -> tuple[int, int]:
    """The number at ``position`` and where the next one begins."""
    value = 0
    for index, byte in enumerate(serialized[position : position + _VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise InvalidValueError(f"the bytes are no serialized topology: they break off at byte {position}; {_FIX}")


def _skip(serialized: bytes, position: int, length: int) -> int:
    if position + length > len(serialized):
        raise InvalidValueError(f"the bytes are no serialized topology: they break off at byte {position}; {_FIX}")
    return position + length


def _as_signed(value: int) -> int:
    """A varint's 64 bits as the int32 they stand for: negative numbers are written with all their bits."""
    low = value & 0xFFFF_FFFF
    return low - 2**32 if low >= 2**31 else low


def _number(number: int, value: int) -> bytes:
    """A field of one number; zero is what an absent field says."""
    return _as_varint(number << 3 | _VARINT) + _as_varint(value) if value else b""


def _pack(number: int, values: Sequence[int]) -> bytes:
    body = b"".join(map(_as_varint, values))
    return _as_varint(number << 3 | _LENGTH_DELIMITED) + _as_varint(len(body)) + body if body else b""


def _as_varint(value: int) -> bytes:
    rest, written = value & (2**64 - 1), bytearray()
    while rest >= 0x80:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    written.append(rest)
    return bytes(written)
