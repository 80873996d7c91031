"""Kombu's Redis transport for a queue into which others may put anything: what is no doorbell is dropped.

Kombu and Celery raise at what they cannot decode, and the process ends: each malformed element would silence the
doorbell for as long as a start takes. Headers are not believed at all but written anew: Celery obeys some of them.
"""

import base64
import json
import logging
import secrets
from queue import Empty
from typing import Annotated, Any

from kombu.transport.redis import Channel, Transport
from pydantic import Base64Bytes, BaseModel, Field

from drumline.contracts.doorbell import TASK_NAME

_LOG = logging.getLogger(__name__)


class _Element(BaseModel):
    """What is needed of a message."""

    body: Annotated[Base64Bytes, Field(max_length=65_536)]


class _Call(BaseModel):
    """The body: a task's arguments, of which ours has one."""

    arguments: tuple[dict[str, Any]]  # Any: the task verifies it


class SiftingChannel(Channel):
    """Takes what is no JSON for nothing at all."""

    def _brpop_read(self, **options: Any) -> bool:
        try:
            return bool(super()._brpop_read(**options))  # type: ignore[no-untyped-call] # kombu has no types
        except (ValueError, RecursionError) as error:
            _LOG.warning("dropped an element of the queue that is no message: %s", type(error).__name__)
            raise Empty from error


class SiftingTransport(Transport):
    """Delivers doorbells, whoever sent them, and drops the rest."""

    Channel = SiftingChannel

    def _deliver(self, message: object, queue: str) -> None:
        try:
            call = _call_in(message)
        except ValueError as error:
            _LOG.warning("dropped a message that is no doorbell: %s", type(error).__name__)
            return
        super()._deliver(_written_anew(call, queue), queue)  # type: ignore[no-untyped-call] # kombu has no types


def _call_in(message: object) -> _Call:
    """What the message calls our task with. Raises ValueError."""
    element = _Element.model_validate(message)
    try:
        called = json.loads(element.body)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return _Call.model_validate({"arguments": called[0] if isinstance(called, list) and called else None})


def _written_anew(call: _Call, queue: str) -> dict[str, Any]:
    """The same call as Celery's own publisher writes it."""
    task = secrets.token_hex(16)
    return {
        "body": base64.b64encode(json.dumps([call.arguments, {}, {}]).encode()).decode(),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"lang": "py", "task": TASK_NAME, "id": task, "root_id": task, "ignore_result": True},
        "properties": {
            "correlation_id": task,
            "delivery_tag": secrets.token_hex(16),
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": queue},
            "body_encoding": "base64",
            "priority": 0,
        },
    }
