"""Rings doorbells through Celery: the only place of the server that imports it. The broker may be away at any time."""

import logging
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from drumline.contracts.brokers import Judgement, Verdict, judge_info
from drumline.contracts.doorbell import TASK_NAME, VALID_S, Doorbell, ProbeDoorbell, queue_name

if TYPE_CHECKING:
    from celery import Celery

log = logging.getLogger(__name__)

_CONNECT_S = 1.0
_ANSWER_S = 2.0


class BrokerUnavailableError(Exception):
    """The broker did not take a doorbell; workers learn of their work by heartbeat."""


class BrokerRefusedError(BrokerUnavailableError):
    """The broker is a Redis or Valkey that is too old to be safe; the message says which, and what to install."""


def require_safe(broker_url: str | None) -> None:
    """Raises BrokerRefusedError for a broker over the network that is too old; one that is away is judged later."""
    if broker_url is None or not urlsplit(broker_url).hostname:
        return  # none, or on a unix socket, where only this user's own programs come
    queue = DoorbellQueue(broker_url)
    try:
        queue.require_safe()
    except BrokerRefusedError:
        raise
    except BrokerUnavailableError as error:
        log.warning("no broker: %s; workers learn of their work by heartbeat", error)
    finally:
        queue.close()


class DoorbellQueue:
    """Publishes to the queues of hosts. Blocks for seconds at most: call it in a thread of its own."""

    def __init__(self, broker_url: str) -> None:
        self._broker_url = broker_url
        self._is_safe = False

    @cached_property
    def _app(self) -> "Celery":
        """Celery is imported with the first doorbell: the server starts without waiting for it."""
        from celery import Celery

        app = Celery("drumline", broker=self._broker_url, set_as_current=False)
        app.conf.update(
            task_ignore_result=True,
            result_backend=None,
            accept_content=["json"],
            task_serializer="json",
            broker_connection_timeout=_CONNECT_S,
            broker_transport_options={
                "socket_connect_timeout": _CONNECT_S,
                "socket_timeout": _ANSWER_S,
                "visibility_timeout": VALID_S,
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

    def ring(self, doorbell: Doorbell | ProbeDoorbell) -> None:
        """Puts the doorbell into its host's queue. Raises BrokerUnavailableError."""
        if urlsplit(self._broker_url).hostname:
            self.require_safe()
        try:
            self._app.send_task(
                TASK_NAME,
                args=[doorbell.model_dump(mode="json")],
                queue=queue_name(doorbell.host),
                expires=VALID_S,
                retry=False,
                ignore_result=True,
            )
        except Exception as error:
            raise BrokerUnavailableError(f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Closes the connections."""
        self._app.close()
