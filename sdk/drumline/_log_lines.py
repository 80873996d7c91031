"""The log of server and worker: a line of text, or of JSON, for each record, with what the record is about."""

import json
import logging
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal

LogFormat = Literal["text", "json"]
_MAX_CHARACTERS = 32_768
"""Of a message or a traceback; a longer one says that it was cut."""


def _nothing() -> Mapping[str, str]:
    return {}


about: ContextVar[Callable[[], Mapping[str, str]]] = ContextVar("drumline_log_about", default=_nothing)
"""Gives ids by name, such as `request` and `run`, that each JSON line of this context holds. Asked for each record: a
request's path is known only once it has met its route."""


def log_about(**ids: str) -> None:
    """Has lines of this context, further on, hold these ids as well."""
    before = about.get()
    about.set(lambda: {**before(), **ids})


def set_up_logging(form: LogFormat, text: str) -> None:
    """Has the process log to standard error from INFO on; `text` is the layout of lines that are no JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLine() if form == "json" else logging.Formatter(text))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


class _JsonLine(logging.Formatter):
    """One object a line: `time` (UTC), `level`, `logger`, `message`, ids, `error` with a traceback, and `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": _cut(record.getMessage()),
            **about.get()(),
            **getattr(record, "told", {}),
        }
        if record.exc_info:
            line["error"] = _cut(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False, default=str)


def _cut(text: str) -> str:
    left = len(text) - _MAX_CHARACTERS
    return f"{text[:_MAX_CHARACTERS]}… and {left} characters" if left > 0 else text
