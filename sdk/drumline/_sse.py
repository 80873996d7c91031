"""Server-sent events, parsed as the HTML standard says (9.2.6), from bytes in any chunking."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MAX_LINE_BYTES = 8 * 2**20
"""Of one line; a server that never ends its line is not to fill our memory."""


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event; `id` is that of the newest event that had one."""

    kind: str
    text: str
    id: str


def parse_events(chunks: Iterable[bytes], max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[ServerSentEvent]:
    """Events as they are complete; comments (pings) and `retry` yield nothing. ValueError for an endless line."""
    kind, event_id = "", ""
    texts: list[str] = []
    for line in _lines(chunks, max_line_bytes):
        if not line:
            if texts:
                yield ServerSentEvent(kind or "message", "\n".join(texts), event_id)
            kind, texts = "", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            kind = value
        elif field == "data":
            texts.append(value)
        elif field == "id" and "\0" not in value:
            event_id = value


def _lines(chunks: Iterable[bytes], max_line_bytes: int) -> Iterator[str]:
    """Lines ended by CR, LF or both. An unfinished line at the end is dropped: its event was cut off."""
    pending = b""
    first = True
    for chunk in chunks:
        pending += chunk
        held = b"\r" if pending.endswith(b"\r") else b""  # its LF may come with the next chunk
        *complete, pending = _split(pending.removesuffix(b"\r") if held else pending)
        pending += held
        if len(pending) > max_line_bytes:
            raise ValueError(f"a line of the stream is over {max_line_bytes} bytes")
        for line in complete:
            text = line.decode("utf-8", "replace")
            yield text.removeprefix("\ufeff") if first else text
            first = False


def _split(text: bytes) -> list[bytes]:
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
