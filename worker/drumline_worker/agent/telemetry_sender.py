"""Sends one member's spool to the server: in order, in batches, until the last event is acknowledged."""

import asyncio
import contextlib
import itertools
import json
import logging
from collections import deque
from collections.abc import Callable

from drumline.contracts.events import GapEvent, MemberAck
from drumline_worker.agent.agent_context import AgentContext
from drumline_worker.agent.api import Backoff, RefusedError, UnreachableError
from drumline_worker.host.spool import Record, SpoolReader
from drumline_worker.host.system import now

_LOG = logging.getLogger(__name__)
MAX_BATCH_EVENTS = 1_000
MAX_BATCH_BYTES = 960 * 1024
"""Of events; with what frames them a batch stays below the server's limit of 1 MiB."""
PAUSE_S = 0.1
"""While the program runs and nothing is left over, at most ten batches a second: events collect meanwhile."""
_NO_WINDOW_S = 1.0
_NAMED = frozenset({"log", "metrics", "reduction", "media", "profile", "artifact"})
"""Kinds of events whose loss a gap names."""


class TelemetrySender:
    """`tell` and `finish` say how far the spool goes; `run` returns when all of it is acknowledged or pointless."""

    def __init__(
        self,
        context: AgentContext,
        member: str,
        fence: int,
        reader: SpoolReader,
        *,
        on_ack: Callable[[MemberAck], None],
        on_fenced: Callable[[], None],
    ) -> None:
        self._api = context.api
        self._registration = context.registration
        self._turns = context.sending
        self._member = member
        self._fence = fence
        self._reader = reader
        self._on_ack = on_ack
        self._on_fenced = on_fenced
        self._spooled = 0
        self._last: int | None = None
        self._changed = asyncio.Event()
        self._finished = asyncio.Event()
        self.news = asyncio.Event()
        """Set when the server has taken more, or nothing more will be sent."""
        self.done = asyncio.Event()
        """Set when nothing more will be sent."""
        self._unacked: deque[Record] = deque()
        self._acked = 0
        self._window = MAX_BATCH_EVENTS
        self._batch_limit = MAX_BATCH_EVENTS
        self._backoff = Backoff()

    def tell(self, seq: int) -> None:
        """The spool holds events up to `seq`."""
        self._spooled = max(self._spooled, seq)
        self._changed.set()

    def finish(self, last_seq: int) -> None:
        """No event comes after `last_seq`."""
        self._last = last_seq
        self._finished.set()
        self.tell(last_seq)

    @property
    def unsent_bytes(self) -> int:
        """About how much the server does not have yet."""
        return self._reader.size_bytes() + sum(len(record.payload or b"") for record in self._unacked)

    async def run(self) -> None:
        """Sends until finished, or until the server says that the member is gone."""
        self._reader.skip_to(self._reader.first_seq())
        try:
            while self._last is None or self._acked < self._last:
                if self._acked >= self._spooled:
                    self._changed.clear()
                    await self._changed.wait()
                elif not await self._send_batch():
                    return
                else:
                    await self._pause()
        finally:
            self._reader.close()
            self.done.set()
            self.news.set()

    async def _pause(self) -> None:
        """Lets events collect, unless the program has ended or there is more to send."""
        if self._window == 0:
            await asyncio.sleep(_NO_WINDOW_S)
            return
        if self._acked < self._spooled:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PAUSE_S):
                await self._finished.wait()

    async def _send_batch(self) -> bool:
        """Sends what there is; False when the member is gone."""
        limit = max(1, min(self._window, self._batch_limit))
        if len(self._unacked) < limit:
            more = limit - len(self._unacked)
            self._unacked += self._reader.read(self._spooled, more, MAX_BATCH_BYTES)
        batch = _at_most(self._unacked, limit)
        try:
            async with self._turns:
                ack = await self._api.send_events(self._member, self._head(batch[0].seq), [_event(r) for r in batch])
        except UnreachableError as error:
            await asyncio.sleep(error.retry_after_s or self._backoff.next_s())
        except RefusedError as error:
            return await self._on_refused(error, batch)
        else:
            self._backoff.reset()
            self._accept(ack)
        return True

    def _head(self, first_seq: int) -> str:
        return f'"fence":{self._fence},"incarnation":"{self._registration.incarnation}","first_seq":{first_seq}'

    def _accept(self, ack: MemberAck) -> None:
        self._acked = max(self._acked, ack.acked_seq)
        while self._unacked and self._unacked[0].seq <= self._acked:
            self._unacked.popleft()
        if self._unacked and self._unacked[0].seq > self._acked + 1:  # what the server lacks, the spool lacks as well
            lost = range(self._acked + 1, self._unacked[0].seq)
            self._unacked.extendleft(Record(seq, None) for seq in reversed(lost))
        self._window = ack.window
        self._batch_limit = MAX_BATCH_EVENTS
        self._on_ack(ack)
        self.news.set()

    async def _on_refused(self, error: RefusedError, batch: list[Record]) -> bool:
        if error.member_is_gone:
            self._on_fenced()
            return False
        if error.worker_is_unknown:
            self._registration.register_again()
            await asyncio.sleep(self._backoff.next_s())
        elif len(batch) > 1:
            self._batch_limit = len(batch) // 2
        else:
            _LOG.error("the server refuses event %d of %s: %s", batch[0].seq, self._member, error)
            self._unacked[0] = Record(batch[0].seq, _refused_event(batch[0]))
            if batch[0].payload is None or batch[0].payload == self._unacked[0].payload:
                await asyncio.sleep(self._backoff.next_s())
        return True


def _at_most(records: deque[Record], count: int) -> list[Record]:
    """The first records that one batch may hold."""
    batch: list[Record] = []
    size = 0
    for record in itertools.islice(records, count):
        size += len(record.payload or b"")
        if batch and size > MAX_BATCH_BYTES:
            break
        batch.append(record)
    return batch


def _event(record: Record) -> bytes:
    """The event; where the disk has none, a gap in its place, so that the seq has no hole."""
    if record.payload is not None:
        return record.payload
    return _gap(record.seq, "spool", 1, record.lost_bytes, "the host's disk lost this event")


def _refused_event(record: Record) -> bytes:
    """What is sent in the place of an event that the server refuses: the loss of what it held."""
    payload = record.payload or b"{}"
    held = json.loads(payload)
    known_to_all = held.get("what") not in (
        "media",
        "profile",
        "artifact",
    )  # which a server of the release before does not know
    if held.get("kind") == "gap" and known_to_all:
        return payload
    what = held["kind"] if held.get("kind") in _NAMED else "spool"
    count = len(held["names"]) if what == "metrics" else held.get("count", 1)
    size = len(held["text"].encode()) if what == "log" else len(payload)
    return _gap(record.seq, what, count, size, "the server refused this event")


def _gap(seq: int, what: str, count: int, size_bytes: int, detail: str) -> bytes:
    gap = {"seq": seq, "at": now(), "what": what, "count": max(1, count), "size_bytes": size_bytes, "detail": detail}
    return GapEvent.model_validate(gap).model_dump_json().encode()
