"""JSON messages over a stream socket: frames of at most 64 KiB, a long message being several frames in a row."""

import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any

MAX_FRAME_BYTES = 65_536
MAX_MESSAGE_BYTES = 2 * 1024 * 1024
_HEADER = struct.Struct(">I")
_MORE = 1 << 31
"""Set in a frame's length when the message continues in the next frame."""

Message = dict[str, Any]  # Any: JSON as it came; every reader validates it with a model


class FramingError(ValueError):
    """The peer broke the framing; nothing more can be read from this stream."""


def encode(message: Mapping[str, object]) -> bytes:
    """The frames of one message."""
    return encode_payload(json.dumps(message, separators=(",", ":")).encode())


def encode_payload(payload: bytes) -> bytes:
    """The frames of one message that is JSON already."""
    cuts = range(0, len(payload), MAX_FRAME_BYTES) if payload else range(1)
    frames = []
    for start in cuts:
        piece = payload[start : start + MAX_FRAME_BYTES]
        more = _MORE if start + MAX_FRAME_BYTES < len(payload) else 0
        frames.append(_HEADER.pack(len(piece) | more) + piece)
    return b"".join(frames)


class Decoder:
    """Puts messages together from whatever pieces the socket gives."""

    def __init__(self, max_message_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._max = max_message_bytes
        self._raw = bytearray()
        self._message = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yields the payloads that `chunk` completes.

        Raises FramingError for a frame over 64 KiB or a message over the limit, after whatever was whole before it.
        """
        self._raw += chunk
        while (frame := self._next_frame()) is not None:
            piece, more = frame
            if len(self._message) + len(piece) > self._max:
                raise FramingError(f"a message is longer than {self._max} bytes")
            self._message += piece
            if not more:
                complete = bytes(self._message)
                self._message.clear()
                yield complete

    def _next_frame(self) -> tuple[bytes, bool] | None:
        if len(self._raw) < _HEADER.size:
            return None
        (header,) = _HEADER.unpack_from(self._raw)
        length, more = header & ~_MORE, bool(header & _MORE)
        if length > MAX_FRAME_BYTES:
            raise FramingError(f"a frame claims {length} bytes; at most {MAX_FRAME_BYTES} are allowed")
        end = _HEADER.size + length
        if len(self._raw) < end:
            return None
        piece = bytes(self._raw[_HEADER.size : end])
        del self._raw[:end]
        return piece, more


def parse(payload: bytes) -> Message:
    """One message as a dict; raises FramingError when it is no JSON object."""
    try:
        message = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise FramingError(f"a message is not JSON: {error}") from None
    if not isinstance(message, dict):
        raise FramingError(f"a message is a JSON {type(message).__name__}, not an object")
    return message
