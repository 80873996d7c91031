"""News of commits: told to listeners in this process once it is durable, and to hosts through Celery.

A notification to a host is a hint. It carries nothing, and may be lost, late, doubled or forged without harm: the
host's next heartbeat brings the news anyway. So publishing happens after the commit, in a thread of its own, and may
fail. This is the only place of the server that imports Celery.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sqlalchemy.orm import Session

from drumline.contracts.brokers import NOTIFY_TASK, Judgement, Verdict, judge_info
from drumline.contracts.heartbeats import queue_name
from drumline_server.base.errors import BrokerRefusedError, BrokerUnavailableError

if TYPE_CHECKING:
    from celery import Celery

log = logging.getLogger(__name__)

Listener = Callable[[frozenset[str]], None]
QUEUE = "queue"
CANCELS = "cancels"
BULKS = "bulks"
WEBHOOKS = "webhooks"
ERASURES = "erasures"
CREDENTIALS = "credentials"
_NOTIFY = "notify:"
_KEY = "drumline.topics"


def run_events(run_id: str) -> str:
    """The topic of a run that has new events."""
    return f"run:{run_id}"


def run_list(run_id: str) -> str:
    """The topic of a run that lists of runs show otherwise now."""
    return f"runs:{run_id}"


def host_list(host_id: str) -> str:
    """The topic of a host that the fleet's lists show otherwise now."""
    return f"fleet:{host_id}"


def ids_in(topics: Iterable[str], kind: Callable[[str], str]) -> set[str]:
    """Of which runs or hosts there are topics of the `kind`, one of the functions above."""
    prefix = kind("")
    return {topic.removeprefix(prefix) for topic in topics if topic.startswith(prefix)}


def announce(session: Session, *topics: str) -> None:
    """Tells `topics` to all listeners after this transaction has committed; nothing if it does not."""
    session.info.setdefault(_KEY, set()).update(topics)


def notify(session: Session, host_id: str) -> None:
    """Has the host woken after this transaction has committed: its next heartbeat brings news."""
    announce(session, _NOTIFY + host_id)


def notified_hosts(topics: Iterable[str]) -> list[str]:
    """The hosts that `topics` want notified, oldest id first: the order of a set is another one in every process."""
    return sorted(topic.removeprefix(_NOTIFY) for topic in topics if topic.startswith(_NOTIFY))


def announced_topics(session: Session) -> frozenset[str]:
    """What the transaction of `session` has announced so far."""
    return frozenset(session.info.get(_KEY, ()))


class CommitNews:
    """Tells listeners of the commits of one database, made in this process."""

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


MOST_WAITING = 1_000
"""Hosts that may wait to be notified; of more, the oldest learn by heartbeat."""
_SOCKET_S = 0.5
"""For the connection, and for the answer: a publication takes a second at most, however long the broker hangs."""
_EXPIRES_S = 60
"""Nobody is woken by what lay in the queue for longer: a dozen heartbeats have brought the news."""


def require_safe(broker_url: str | None) -> None:
    """Raises BrokerRefusedError for a broker over the network that is too old; one that is away is judged later."""
    if broker_url is None or not urlsplit(broker_url).hostname:
        return  # none, or on a unix socket, where only this user's own programs come
    publisher = Publisher(broker_url)
    try:
        publisher.require_safe()
    except BrokerRefusedError:
        raise
    except BrokerUnavailableError as error:
        log.warning("no broker: %s; workers learn of their work by heartbeat", error)
    finally:
        publisher.close()


class Publisher:
    """Puts notifications into the queues of hosts. Blocks for a second at most: call it in a thread of its own."""

    def __init__(self, broker_url: str) -> None:
        self._broker_url = broker_url
        self._is_safe = False

    @cached_property
    def _app(self) -> "Celery":
        """Celery is imported with the first notification: the server starts without waiting for it."""
        from celery import Celery

        app = Celery("drumline", broker=self._broker_url, set_as_current=False)
        app.conf.update(
            task_ignore_result=True,
            result_backend=None,
            accept_content=["json"],
            task_serializer="json",
            broker_connection_timeout=_SOCKET_S,
            broker_transport_options={
                "socket_connect_timeout": _SOCKET_S,
                "socket_timeout": _SOCKET_S,
                "max_retries": 0,
            },
        )
        return app

    def require_safe(self) -> None:
        """Asks the broker once what it is. Raises BrokerRefusedError, or BrokerUnavailableError for no answer."""
        if self._is_safe:
            return
        judgement = self._judge()
        address = urlsplit(self._broker_url)
        place = f"{address.hostname}:{address.port or 6379}"
        if judgement.verdict is Verdict.REFUSED:
            raise BrokerRefusedError(f"the broker at {place} cannot be used: {judgement.reason}")
        if judgement.verdict is Verdict.UNKNOWN:
            log.warning("the broker at %s: %s", place, judgement.reason)
        self._is_safe = True

    def _judge(self) -> Judgement:
        try:
            with self._app.connection_for_write() as connection, connection.channel() as channel:
                client = getattr(channel, "client", None)
                if client is None:
                    return Judgement(Verdict.UNKNOWN, "it is no Redis or Valkey")
                client.set_response_callback("INFO", lambda text, **_: text)  # unparsed
                said = client.execute_command("INFO")
        except Exception as error:
            if type(error).__name__ == "NoPermissionError":  # its user may use queues and nothing else
                return Judgement(Verdict.UNKNOWN, "it does not tell its version (allow its user INFO)")
            raise BrokerUnavailableError(f"{type(error).__name__}: {error}") from error
        return judge_info(said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said))

    def notify(self, host_id: str) -> None:
        """Puts a notification into the host's queue. Raises BrokerUnavailableError."""
        if urlsplit(self._broker_url).hostname:
            self.require_safe()
        try:
            self._app.send_task(
                NOTIFY_TASK,
                queue=queue_name(host_id),
                declare=(),  # a list needs no declaration, which would leave a binding in the broker for each host
                expires=_EXPIRES_S,
                retry=False,
                ignore_result=True,
            )
        except Exception as error:
            raise BrokerUnavailableError(f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Closes the connections."""
        self._app.close()


class WaitingHosts:
    """Hosts to notify, oldest first and each once; of too many the oldest is dropped. For any number of threads."""

    def __init__(self, most: int = MOST_WAITING) -> None:
        self._most = most
        self._hosts: dict[str, None] = {}
        self._changed = threading.Condition()
        self._closed = False
        self.dropped = 0
        """How many had to make room."""

    def __len__(self) -> int:
        return len(self._hosts)

    def put(self, host_id: str) -> None:
        """Does not block: it is called by whoever has committed."""
        with self._changed:
            if self._closed or host_id in self._hosts:
                return
            if len(self._hosts) >= self._most:
                del self._hosts[next(iter(self._hosts))]
                self.dropped += 1
            self._hosts[host_id] = None
            self._changed.notify()

    def take(self) -> str | None:
        """Waits for the next one; None once it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._hosts or self._closed)
            if self._closed:
                return None
            host_id = next(iter(self._hosts))
            del self._hosts[host_id]
            return host_id

    def close(self) -> None:
        """Nobody is notified any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class Notifier:
    """Follows commits and notifies the hosts that they have news for, in a thread that may hang without harm."""

    def __init__(self, publisher: Publisher, commit_news: CommitNews) -> None:
        self._publisher = publisher
        self._waiting = WaitingHosts()
        self._sent = self._failed = 0
        self._is_away = False
        self._unsubscribe = follow(commit_news, self._waiting)
        threading.Thread(target=self._run, name="notifier", daemon=True).start()

    def counts(self) -> dict[str, int]:
        """What became of the notifications since the start."""
        return {"sent": self._sent, "failed": self._failed, "dropped": self._waiting.dropped}

    def close(self) -> None:
        """Ends the thread without waiting: it may hang in the broker for another second."""
        self._unsubscribe()
        self._waiting.close()

    def _run(self) -> None:
        while (host_id := self._waiting.take()) is not None:
            try:
                self._publisher.notify(host_id)
            except BrokerUnavailableError as error:
                self._failed += 1
                if not self._is_away:  # once for each outage
                    log.warning("no broker: %s; workers learn of their work by heartbeat", error)
                self._is_away = True
            else:
                self._sent += 1
                self._is_away = False
        self._publisher.close()


def follow(commit_news: CommitNews, waiting: WaitingHosts) -> Callable[[], None]:
    """Puts the hosts of every commit among the waiting. Returns a function that ends it."""

    def put_hosts(topics: frozenset[str]) -> None:
        for host_id in notified_hosts(topics):
            waiting.put(host_id)

    return commit_news.subscribe(put_hosts)
