"""One open stream: what it waits for, what it has been sent, and what it is owed."""

import asyncio
from collections.abc import Mapping

from drumline.contracts import api
from drumline_server.auth.principal import Principal
from drumline_server.live.positions import Topics

MAX_HINTS = 200
"""More different hints than this at once become one that names no run and no host."""


class Subscriber:
    """The state of one stream. Everything runs in the event loop."""

    def __init__(self, principal: Principal, topics: Topics, positions: Mapping[str, int]) -> None:
        self.principal = principal
        self.topics = topics
        self.positions = dict(positions)
        """The last event of each run that was sent."""
        self.replaying = set(topics.runs)
        """Runs whose past is still being sent; a stream that fell behind after that must start over."""
        self.finished: set[str] = set()
        """Runs whose last event was sent."""
        self.closing = False
        self.is_doubted = False
        """Whether credentials have changed since its own was looked at."""
        self._news = asyncio.Event()
        self._hints: dict[tuple[str, str | None], api.StreamHint] = {}
        self._crowded: set[str] = set()

    @property
    def is_over(self) -> bool:
        """Whether nothing can come any more: only ended runs were asked for, and all was sent."""
        return not self.topics.hints and self.finished.issuperset(self.topics.runs)

    def wake(self) -> None:
        """Says that there may be something to send."""
        self._news.set()

    def doubt(self) -> None:
        """Has the stream look whether its credential is still good."""
        self.is_doubted = True
        self._news.set()

    def close(self) -> None:
        """Ends the stream at its next step."""
        self.closing = True
        self._news.set()

    def hint(self, hint: api.StreamHint) -> None:
        """Notes that a list changed; the same hint waits only once."""
        if hint.topic not in self.topics.hints or hint.topic in self._crowded:
            return
        self._hints[hint.topic, hint.run or hint.host] = hint
        if len(self._hints) > MAX_HINTS:
            self._crowded = {topic for topic, _ in self._hints}
            self._hints = {(topic, None): _general(topic) for topic in self._crowded}
        self._news.set()

    def take_hints(self) -> list[api.StreamHint]:
        """The hints that wait, which then wait no longer."""
        hints = list(self._hints.values())
        self._hints.clear()
        self._crowded.clear()
        return hints

    async def wait(self, timeout_s: float) -> None:
        """Returns when there may be something to send, and after `timeout_s` in any case."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        except TimeoutError:
            return
        finally:
            self._news.clear()


def _general(topic: str) -> api.StreamHint:
    return api.StreamHint.model_validate({"topic": topic})
