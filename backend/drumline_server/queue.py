"""Rings doorbells through Celery: the only place of the server that imports it. The broker may be away at any time."""

import logging
from functools import cached_property
from typing import TYPE_CHECKING

from drumline.contracts.doorbell import TASK_NAME, VALID_S, Doorbell, ProbeDoorbell, queue_name

if TYPE_CHECKING:
    from celery import Celery

log = logging.getLogger(__name__)

_CONNECT_S = 1.0
_ANSWER_S = 2.0


class BrokerUnavailableError(Exception):
    """The broker did not take a doorbell; workers learn of their work by heartbeat."""


class DoorbellQueue:
    """Publishes to the queues of hosts. Blocks for seconds at most: call it in a thread of its own."""

    def __init__(self, broker_url: str) -> None:
        self._broker_url = broker_url

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

    def ring(self, doorbell: Doorbell | ProbeDoorbell) -> None:
        """Puts the doorbell into its host's queue. Raises BrokerUnavailableError."""
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
