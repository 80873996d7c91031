"""The Celery child: listens on the queue of this host and wakes the agent through a pipe. The agent starts it.

A byte through a pipe says that a notification came; nothing of what it holds is used, so that it makes no difference
who sent it. The agent supervises this process and works without it: heartbeats bring the same news. What Celery cannot
decode ends the process; the next one begins with an empty queue.
"""

import json
import logging
import os
import threading
import warnings
from collections.abc import Callable
from typing import Any, BinaryIO

import click
from celery import Celery
from celery.exceptions import CPendingDeprecationWarning, SecurityWarning
from celery.signals import worker_ready

from drumline.contracts.brokers import NOTIFY_TASK, Verdict, judge_info
from drumline_worker.host.system import set_name

_LOG = logging.getLogger(__name__)


def make_app(broker_url: str, queue: str, wake: Callable[[], None]) -> Celery:
    """The app with the settings of the protocol ("Celery, exactly")."""
    app = Celery("drumline", broker=broker_url, set_as_current=False)
    app.conf.update(
        task_acks_late=False,
        task_ignore_result=True,
        result_backend=None,
        task_serializer="json",
        accept_content=["json"],
        worker_pool="solo",
        worker_prefetch_multiplier=1,
        worker_eta_task_limit=1_000,  # whoever can write the queue can ask for later, and fill the memory with it
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_log_format="%(levelname)s %(name)s: %(message).500s",
        task_default_queue=queue,
        task_create_missing_queues=True,
        broker_transport_options={
            "ack_emulation": False,  # a notification that is lost with this process is no loss
            "socket_timeout": 30,
            "socket_keepalive": not broker_url.startswith("redis+socket"),
            "health_check_interval": 15,
        },
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
    )

    @app.task(name=NOTIFY_TASK, ignore_result=True)  # type: ignore[untyped-decorator] # celery has no types
    def notify(*_: Any, **__: Any) -> None:  # Any: whatever lay in the queue
        wake()

    return app


@click.command()
@click.option("--settings-fd", type=int, required=True, help="Gives a line of JSON: broker_url and queue.")
@click.option("--wake-fd", type=int, required=True, help="Gets a byte once the queue is listened to, and for all news.")
def main(settings_fd: int, wake_fd: int) -> None:
    """Serves the queue until the agent closes the pipe `settings-fd`."""
    set_name("drumline-celery")
    warnings.simplefilter("ignore", SecurityWarning)  # about pickle under root: this app takes JSON only
    warnings.simplefilter("ignore", CPendingDeprecationWarning)  # about late acks, which it does not use
    pipe = os.fdopen(settings_fd, "rb", buffering=0)
    settings = json.loads(_line(pipe))
    threading.Thread(target=_end_with, args=(pipe,), name="drumline-agent-watch", daemon=True).start()
    os.set_blocking(wake_fd, False)

    def wake() -> None:
        try:
            os.write(wake_fd, b"\n")
        except BlockingIOError:
            _LOG.debug("the agent has thousands of wake-ups to read already")

    app = make_app(settings["broker_url"], settings["queue"], wake)
    worker_ready.connect(lambda **_: wake(), weak=False)
    _prepare(app)
    app.worker_main(
        [
            "worker",
            f"--queues={settings['queue']}",
            f"--hostname={settings['queue']}",
            "--pool=solo",
            "--without-gossip",
            "--without-mingle",
            "--without-heartbeat",
            "--loglevel=WARNING",
        ]
    )


def _prepare(app: Celery) -> None:
    """Waits for the broker, and empties the queue: what is in it may have ended the child before, and the agent asks
    for all news when this one listens. Exits with a sentence, for the agent, where the broker is too old to be safe.
    """

    def tell(error: Exception, wait_s: float) -> None:
        _LOG.warning("the broker is away (%s); trying again in %.0f s", type(error).__name__, wait_s)

    with app.connection_for_read() as connection:
        connection.ensure_connection(tell, interval_start=1, interval_step=2, interval_max=10)
        _require_safe(connection)
        app.control.purge(connection)


def _require_safe(connection: Any) -> None:  # Any: celery has no types
    """One on a unix socket of this machine is not asked: only this user's own programs come there."""
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
    """There is nothing to save: the agent is gone."""
    while pipe.read(4_096):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
