"""The server with a bomb: `python crashing_server.py POINT server api ...` kills itself at the named point.

POINT is `before-commit` (the next transaction that submits a run is complete but for its COMMIT), `before-publish`
(it is committed, and its host not notified) or `after-publish` (it is notified). The code of the server is the one
that users run; the bomb hangs on hooks of SQLAlchemy and Celery.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from celery import Celery
from sqlalchemy import Connection, event
from sqlalchemy.engine import Engine

from drumline.cli.main import main


def _explode() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _before_commit() -> None:
    submitting: set[int] = set()

    @event.listens_for(Engine, "after_cursor_execute")
    def note(connection: Connection, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("INSERT INTO run "):
            submitting.add(id(connection))

    @event.listens_for(Engine, "commit")
    def look(connection: Connection) -> None:
        if id(connection) in submitting:
            _explode()


def _around_publish(*, after: bool) -> None:
    send: Any = Celery.send_task  # Any: Celery has no types

    def send_and_explode(app: Any, *arguments: Any, **options: Any) -> None:
        if after:
            send(app, *arguments, **options)
        _explode()

    Celery.send_task = send_and_explode


POINTS: dict[str, Callable[[], None]] = {
    "before-commit": _before_commit,
    "before-publish": lambda: _around_publish(after=False),
    "after-publish": lambda: _around_publish(after=True),
}


if __name__ == "__main__":
    POINTS[sys.argv.pop(1)]()
    main()
