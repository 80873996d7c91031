"""Sends what a program logs beside numbers, and its summary, from the telemetry's thread."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax

from drumline.contracts.media import MAX_MEDIA_BYTES, MAX_MEDIA_NAMES, MAX_MEDIA_VALUES
from drumline.errors import MediaError
from drumline.local.media import Taken
from drumline.media import SummaryValue
from drumline_worker.host.tally import Tally
from drumline_worker.runner.channel import Channel

MAX_WAITING_BYTES = 128 * 1024 * 1024
"""Arrays that wait to be encoded are kept where they are; one always is, however large."""
UNREADABLE = (RuntimeError, TypeError, ValueError, OverflowError)
"""What reading an array can raise: it was donated to a later step, its computation failed, it is no real number."""


@dataclass(frozen=True, slots=True)
class _Logged:
    name: str
    step: int
    taken: Taken


class MediaReports:
    """Histograms, images, texts and tables in the order of logging. Its owner's lock is held but in `send`."""

    def __init__(self, channel: Channel, tally: Tally) -> None:
        self._channel = channel
        self._tally = tally
        self._waiting: deque[_Logged] = deque()
        self._waiting_bytes = 0
        self._names: set[str] = set()
        self._values = self._bytes = 0
        self._summary: dict[str, SummaryValue] = {}

    def check_room(self, logged: Mapping[str, Taken]) -> None:
        """Raises MediaError where the program has logged as much as one may."""
        if len(self._names | logged.keys()) > MAX_MEDIA_NAMES:
            new = next(name for name in logged if name not in self._names)
            raise MediaError(f"run.log got {new!r}; a program logs media under at most {MAX_MEDIA_NAMES} names")
        if logged and self._values + len(logged) > MAX_MEDIA_VALUES:
            raise MediaError(
                f"run.log got {next(iter(logged))!r} after {self._values} histograms, images, texts and tables; "
                f"at most {MAX_MEDIA_VALUES}: log them at fewer steps"
            )
        if logged and self._bytes >= MAX_MEDIA_BYTES:
            raise MediaError(
                f"run.log got {next(iter(logged))!r} after {self._bytes} bytes of histograms, images, texts and "
                f"tables; at most {MAX_MEDIA_BYTES}: log smaller ones, or fewer"
            )

    def has_room(self, nbytes: int) -> bool:
        """Whether so much more may wait."""
        return not self._waiting or self._waiting_bytes + nbytes <= MAX_WAITING_BYTES

    def add(self, name: str, step: int, taken: Taken) -> None:
        """Queues what was logged."""
        self._tally.count_media()
        self._names.add(name)
        self._values += 1
        self._waiting.append(_Logged(name, step, taken))
        self._waiting_bytes += taken.nbytes

    def set_summary(self, values: Mapping[str, SummaryValue]) -> None:
        """Queues values of the summary; of each name the last one is sent."""
        self._summary |= values

    def take(self) -> tuple[deque[_Logged], dict[str, SummaryValue]]:
        """What waits, for `send`."""
        logged, self._waiting, self._waiting_bytes = self._waiting, deque(), 0
        summary, self._summary = self._summary, {}
        return logged, summary

    def send(self, logged: deque[_Logged], summary: Mapping[str, SummaryValue]) -> None:
        """Sends it; what can't be read any more is a gap in its place. Lets go of each as soon as it is sent."""
        while logged:
            self._send(logged.popleft())
        if summary:
            texts = {name: value for name, value in summary.items() if isinstance(value, str)}
            numbers = {name: value for name, value in summary.items() if name not in texts}
            self._channel.send("summary", numbers=numbers, texts=texts)

    def _send(self, one: _Logged) -> None:
        try:
            content = one.taken.encode()
        except UNREADABLE as error:
            detail = f"{one.taken.kind} {one.name!r:.210} of step {one.step}: {error}"
            self._channel.send("gap", what="media", count=1, detail=_storable(detail)[:500])
            return
        self._bytes += _size(content)
        self._channel.send("media", name=one.name, step=one.step, value=content)


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")


def _size(content: Mapping[str, Any]) -> int:  # Any: JSON
    """About what it takes: of an image its PNG."""
    if content["kind"] == "image":
        return len(content["png"]) * 3 // 4
    if content["kind"] == "text":
        return len(content["text"])
    cells = content["rows"] if content["kind"] == "table" else [content["counts"]]
    return sum(len(cell) if isinstance(cell, str) else 8 for row in cells for cell in row)


def begin_copies(values: Iterable[Any]) -> None:  # Any: numbers and arrays
    """Has devices send all of them at once, before the first is waited for. A CPU's are read where they are."""
    if jax.default_backend() == "cpu":
        return
    for value in values:
        if isinstance(value, jax.Array):
            try:
                value.copy_to_host_async()
            except UNREADABLE:
                continue  # who reads it says so in its place
