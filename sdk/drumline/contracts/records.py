"""Bodies that are larger than one JSON text may be: a head, then the entries of its list as records of one line each.

`application/x-ndjson`: the first line is the object without the list, each further one an entry. The server parses one
record at a time, so that a long body holds up nobody else. Short bodies may come as one JSON text as well.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from drumline.contracts.base import Contract
from drumline.contracts.events import MAX_EVENTS_PER_BATCH, EventBatch
from drumline.contracts.sweeps import MAX_BATCH, BatchSubmit

RECORDS_MEDIA_TYPE = "application/x-ndjson"
MAX_JSON_BYTES = 2**20
"""Of a JSON body."""


@dataclass(frozen=True, slots=True)
class Framing:
    """How a body of records is cut: the name of its list, and the bounds of what comes in."""

    field: str
    most: int
    """Entries."""
    record_bytes: int
    """Of one record."""
    values: int
    """Of one record: numbers, texts and whatever else JSON is made of."""
    json_bytes: int
    """Of a body that is one JSON text."""
    alike: bool = False
    """Whether most entries differ in a few fields only."""


FRAMED: dict[type[Contract], Framing] = {
    BatchSubmit: Framing("runs", MAX_BATCH, record_bytes=2**16, values=20_000, json_bytes=MAX_JSON_BYTES, alike=True),
    # A record is one message of a program, of up to 2 MiB, as a result with its marks. Workers of the version
    # before send a batch of 1 MiB, and one message more, as one JSON text.
    EventBatch: Framing("events", MAX_EVENTS_PER_BATCH, record_bytes=2**22, values=160_000, json_bytes=2**22),
}


def frame(head: bytes, records: Iterable[bytes]) -> bytes:
    """The body: `head` and `records` are JSON without line ends."""
    return b"".join(line + b"\n" for line in (head, *records))
