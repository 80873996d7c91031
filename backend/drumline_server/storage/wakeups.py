"""News of commits: what a transaction touched, told to listeners once it is durable.

A topic is a word, or a word and an id:

- `run:<run id>`    the run has a new event
- `runs:<run id>`   the run's row in a list changed (state, progress)
- `fleet:<host id>` the host or one of its devices changed
- `queue`           a run became runnable, or devices became free
- `notify:<host id>` the host should ask for news now
- `credentials`     a token was revoked

Services call `announce(session, ...)`; the live hub, the scheduler and the notifier subscribe. News is a hint: it
may be missed (another process wrote), so every listener also looks by itself now and then.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable

from sqlalchemy.orm import Session

log = logging.getLogger(__name__)

Listener = Callable[[frozenset[str]], None]
QUEUE = "queue"
CREDENTIALS = "credentials"
_NOTIFY = "notify:"
_KEY = "drumline.topics"


def announce(session: Session, *topics: str) -> None:
    """Tells `topics` to all listeners after this transaction has committed; nothing if it does not."""
    session.info.setdefault(_KEY, set()).update(topics)


def notify(session: Session, host_id: str) -> None:
    """Has the host woken after this transaction has committed: its next heartbeat brings news."""
    announce(session, _NOTIFY + host_id)


def notified_hosts(topics: Iterable[str]) -> list[str]:
    """The hosts that `topics` want notified."""
    return [topic.removeprefix(_NOTIFY) for topic in topics if topic.startswith(_NOTIFY)]


def announced(session: Session) -> frozenset[str]:
    """What the transaction of `session` has announced so far."""
    return frozenset(session.info.get(_KEY, ()))


class Wakeups:
    """The listeners of one database."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: tuple[Listener, ...] = ()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Calls `listener` with the topics of every commit, in the thread that committed: it must not block.

        It is told before whoever wrote hears that the write is done, unless the commit itself failed and yet happened.
        Returns a function that ends the subscription.
        """
        with self._lock:
            self._listeners = (*self._listeners, listener)

        def unsubscribe() -> None:
            with self._lock:
                self._listeners = tuple(other for other in self._listeners if other is not listener)

        return unsubscribe

    def subscribe_in_loop(self, listener: Listener) -> Callable[[], None]:
        """Like `subscribe`, but `listener` is called in the running event loop."""
        loop = asyncio.get_running_loop()

        def forward(topics: frozenset[str]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(listener, topics)

        return self.subscribe(forward)

    def publish(self, topics: Iterable[str]) -> None:
        """Tells all listeners. A listener that raises is logged and does not keep the others from hearing."""
        news = frozenset(topics)
        if not news:
            return
        for listener in self._listeners:
            try:
                listener(news)
            except Exception:
                log.exception("a listener of commits failed on %s", sorted(news))
