"""The one Celery task: verify the doorbell, hand it to the agent."""

import os
import socket
from pathlib import Path
from typing import Any

from celery import Celery
from celery.utils.log import get_task_logger
from pydantic import ValidationError

from drumline.contracts.doorbell import TASK_NAME, DoorbellError, ProbeDoorbell, parse, verify
from drumline_worker.host.doorbell import CeleryConfig, Ring
from drumline_worker.host.framing import encode_payload

_LOG = get_task_logger(__name__)
_SEND_S = 5.0


def register_task(app: Celery, config: CeleryConfig) -> None:
    """Gives `app` its task. A forged, expired or misdirected doorbell is logged and nothing else."""

    @app.task(name=TASK_NAME, ignore_result=True)  # type: ignore[untyped-decorator] # celery has no types
    def execute_attempt(envelope: Any) -> None:  # Any: whatever lay in the queue
        try:
            ring = open_envelope(envelope, config)
        except (ValidationError, DoorbellError) as error:
            _LOG.warning("ignored a doorbell: %s", error)
            return
        hand_over(ring, Path(config.socket))


def open_envelope(envelope: object, config: CeleryConfig) -> Ring:
    """The ring inside. Raises ValidationError for no doorbell at all, DoorbellError for one that is not genuine."""
    doorbell = parse(envelope)
    if doorbell.kid != config.kid:
        raise DoorbellError(f"a doorbell is signed with the key {doorbell.kid!r}")
    verify(doorbell, bytes.fromhex(config.key.get_secret_value()), host=config.host)
    if isinstance(doorbell, ProbeDoorbell):
        return Ring()
    return Ring(member=doorbell.member, fence=doorbell.fence)


def hand_over(ring: Ring, path: Path) -> None:
    """Rings at the agent. An agent that is away hears of the news by its next heartbeat."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(_SEND_S)
            link.connect(f"/proc/self/fd/{directory}/{path.name}")
            link.sendall(encode_payload(ring.model_dump_json().encode()))
    except OSError as error:
        _LOG.warning("the agent did not hear the doorbell of %s: %s", ring.member or "a probe", error)
    finally:
        os.close(directory)
