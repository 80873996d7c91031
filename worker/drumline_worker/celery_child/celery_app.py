"""The Celery child: listens on this host's queue. `python -m drumline_worker.celery_child.celery_app --config-fd N`.

The agent supervises it and works without it. It reads its settings from the pipe and ends when the pipe does.
"""

import logging
import os
import threading
import warnings
from typing import BinaryIO

import click
from celery import Celery
from celery.exceptions import CPendingDeprecationWarning, SecurityWarning
from celery.signals import worker_ready
from kombu.transport import TRANSPORT_ALIASES

from drumline.contracts.brokers import Verdict, judge_info
from drumline_worker.celery_child.tasks import register_task
from drumline_worker.host.doorbell import CeleryConfig
from drumline_worker.host.processes import set_name

_LOG = logging.getLogger(__name__)
VISIBILITY_TIMEOUT_S = 600
_TRANSPORT = "drumline_worker.celery_child.sifting:SiftingTransport"


def make_app(config: CeleryConfig) -> Celery:
    """The app with the settings of the protocol ("Celery, exactly")."""
    TRANSPORT_ALIASES.update(redis=_TRANSPORT, rediss=_TRANSPORT)  # the URL's scheme beats any setting
    app = Celery("drumline", broker=config.broker_url.get_secret_value(), set_as_current=False)
    app.conf.update(
        task_acks_late=False,
        task_ignore_result=True,
        result_backend=None,
        task_serializer="json",
        accept_content=["json"],
        worker_pool="threads",
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        task_default_queue=config.queue,
        task_create_missing_queues=True,
        broker_transport_options={
            "visibility_timeout": VISIBILITY_TIMEOUT_S,
            "unacked_restore_throttle": 1,
            "socket_timeout": 30,
            "socket_keepalive": not config.broker_url.get_secret_value().startswith("redis+socket"),
            "health_check_interval": 15,
        },
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
    )
    register_task(app, config)
    return app


@click.command(add_help_option=False)
@click.option("--config-fd", type=int, required=True)
@click.option("--ready-fd", type=int, help="Gets a byte once the queue is listened to.")
def main(config_fd: int, ready_fd: int | None) -> None:
    """Serves the queue until the agent closes the pipe `config_fd`."""
    set_name("drumline-celery")
    warnings.simplefilter("ignore", SecurityWarning)  # about pickle under root: this app takes JSON only
    warnings.simplefilter("ignore", CPendingDeprecationWarning)  # about late acks, which it does not use
    pipe = os.fdopen(config_fd, "rb", buffering=0)
    config = CeleryConfig.model_validate_json(_line(pipe))
    threading.Thread(target=_end_with, args=(pipe,), name="drumline-agent-watch", daemon=True).start()
    if ready_fd is not None:
        worker_ready.connect(lambda **_: os.write(ready_fd, b"\n"), weak=False)
    app = make_app(config)
    _require_safe_broker(app)
    app.worker_main(
        [
            "worker",
            f"--queues={config.queue}",
            f"--hostname={config.host}",
            "--pool=threads",
            "--concurrency=2",
            "--without-gossip",
            "--without-mingle",
            "--loglevel=WARNING",
        ]
    )


def _require_safe_broker(app: Celery) -> None:
    """Exits with a sentence where the broker is too old to be safe; the agent tells it.

    One that is away, or on a unix socket of this machine, is not asked: Celery waits for it.
    """
    with app.connection_for_read() as connection:
        if not connection.as_uri().startswith(("redis://", "rediss://", "sentinel://")):
            return
        try:
            with connection.channel() as channel:
                channel.client.set_response_callback("INFO", lambda text, **_: text)  # unparsed
                said = channel.client.execute_command("INFO")
        except (OSError, *connection.connection_errors, *connection.channel_errors) as error:
            _LOG.warning("the broker's version could not be asked: %s", type(error).__name__)
            return
    judgement = judge_info(said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said))
    if judgement.verdict is Verdict.REFUSED:
        raise SystemExit(f"the broker cannot be used: {judgement.reason}")
    if judgement.verdict is Verdict.UNKNOWN:
        _LOG.warning("the broker: %s", judgement.reason)


def _line(pipe: BinaryIO) -> bytes:
    raw = b""
    while not raw.endswith(b"\n"):
        piece = pipe.read(65_536)
        if not piece:
            raise SystemExit("the agent closed the pipe before it sent the settings")
        raw += piece
    return raw


def _end_with(pipe: BinaryIO) -> None:
    """There is nothing to save: the message, if any, is acknowledged, and the agent is gone."""
    while pipe.read(4_096):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
