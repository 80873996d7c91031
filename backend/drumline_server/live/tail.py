"""The newest events of one run, read once and shared by all streams that follow it."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from drumline.contracts.base import Reply, Timestamp
from drumline_server.live.subscriber import Subscriber
from drumline_server.models import RunEvent


class _Shown(Reply):
    run: str
    seq: int
    at: Timestamp
    kind: str
    attempt: str | None
    body: dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Rendered:
    """An event as it is sent: its JSON is made once for all readers."""

    seq: int
    json: str
    terminal: bool


def render(event: RunEvent) -> Rendered:
    """The event as the stream shows it."""
    shown = _Shown.model_validate(
        {
            "run": event.run_id,
            "seq": event.seq,
            "at": event.at,
            "kind": event.kind,
            "attempt": event.attempt_id,
            "body": event.body,
        }
    )
    return Rendered(event.seq, shown.model_dump_json(), event.kind == "state" and bool(event.body.get("terminal")))


class Tail:
    """The last `size` events of a run up to `newest`, and the streams that follow it."""

    def __init__(self, run_id: str, newest: int, size: int) -> None:
        self.run_id = run_id
        self.newest = newest
        self.followers: set[Subscriber] = set()
        self._events: deque[Rendered] = deque(maxlen=size)

    def append(self, events: Sequence[Rendered]) -> None:
        """Adds events that follow the newest one, and wakes the followers."""
        added = [event for event in events if event.seq > self.newest]
        if not added:
            return
        self._events.extend(added)
        self.newest = added[-1].seq
        for follower in self.followers:
            follower.wake()

    def reaches(self, seq: int) -> bool:
        """Whether every event after `seq` is still here."""
        return seq >= self.newest - len(self._events)

    def after(self, seq: int) -> list[Rendered]:
        """The events after `seq`; call only where it `reaches`."""
        owed = self.newest - seq
        return list(self._events)[-owed:] if owed > 0 else []
