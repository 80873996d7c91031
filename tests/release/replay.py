"""Recorded requests asked again, and what of their answers is another."""

import re
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

import httpx2

from release.recorder import Exchange

PATIENCE_S = 30.0
"""For a server to come as far as the recorded one was."""
_ID = re.compile(r"(?:drm_[a-z]{3}_\w{50}|[a-z]{3,4}_[0-9A-Za-z]{20,40})")
_IN_PATH = re.compile(
    r"/(?:[a-z]{3,4}_[0-9A-Za-z]{20,40}|sha256(?::|%3A)[0-9a-f]{64}|(?<=jobs/)[^/:]+|(?<=versions/)\d+)"
)
_NUMBER = "number"


def route_of(exchange: Exchange) -> str:
    """Method and path without what names a single thing."""
    path = exchange.target.partition("?")[0]
    return f"{exchange.method} {_IN_PATH.sub('/{}', path.removeprefix('/api/v1'))}"


def lost_fields(
    recorded: Any, found: Any, place: str = "", *, may_be_null: bool = False
) -> Iterator[tuple[str, str]]:  # Any: JSON
    """Places of fields that are gone or of another type, and how: what a client of the release before would miss.

    With `may_be_null` a value is as good as none, and a list as long as it likes: the state is not the recorded one.
    """
    if isinstance(recorded, dict) and isinstance(found, dict):
        for name, value in recorded.items():
            if name in found:
                yield from lost_fields(value, found[name], f"{place}.{name}", may_be_null=may_be_null)
            else:
                yield f"{place}.{name}", "is gone"
    elif isinstance(recorded, list) and isinstance(found, list):
        if len(recorded) != len(found) and not may_be_null:
            yield place, f"has {len(found)} items, not {len(recorded)}"
        for before, after in zip(recorded, found, strict=False):
            yield from lost_fields(before, after, f"{place}[]", may_be_null=may_be_null)
    elif _kind(recorded) != _kind(found) and not (may_be_null and None in (recorded, found)):
        yield place, f"is {_kind(found)}, not {_kind(recorded)}"


def changed_values(recorded: Any, found: Any, place: str = "") -> Iterator[tuple[str, str]]:  # Any: JSON
    """Places at which a recorded value is another now; what is there in addition is no change."""
    if isinstance(recorded, dict) and isinstance(found, dict):
        for name, value in recorded.items():
            yield from changed_values(value, found.get(name), f"{place}.{name}")
    elif isinstance(recorded, list) and isinstance(found, list) and len(recorded) == len(found):
        for before, after in zip(recorded, found, strict=True):
            yield from changed_values(before, after, f"{place}[]")
    elif recorded != found or isinstance(recorded, bool) != isinstance(found, bool):
        yield place, f"is {str(found)[:80]!r}, not {str(recorded)[:80]!r}"


def _kind(value: Any) -> str:  # Any: JSON
    return _NUMBER if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


class Replay:
    """Asks a server what another was asked: ids and tokens of the answers take the place of the recorded ones."""

    def __init__(self, url: str, tokens: Mapping[str, str]) -> None:
        self._http = httpx2.Client(base_url=url, timeout=30)
        self._ids: dict[str, str] = dict(tokens)

    def close(self) -> None:
        self._http.close()

    def now(self, recorded: str) -> str:
        """The id here of what had that id there."""
        return self._ids.get(recorded, recorded)

    def ask(self, exchange: Exchange) -> httpx2.Response:
        """Once more, in today's ids."""
        headers = {name: self._translate(value) for name, value in exchange.asked.items()}
        target = self._translate(unquote(exchange.target)) if "?" not in exchange.target else exchange.target
        answer = self._http.request(
            exchange.method,
            quote(target, safe="/:") if "?" not in target else self._translate(target),
            content=self._translate_bytes(exchange.request_body),
            headers=headers,
        )
        if answer.status_code == exchange.status and exchange.json() is not None:
            self._learn(exchange.json(), answer.json())
        return answer

    def ask_until(self, exchange: Exchange, lists: tuple[str, ...]) -> httpx2.Response:
        """Again and again, until those lists of the answer are as long as they were. Raises AssertionError if never."""
        wanted = {name: len(exchange.json()[name]) for name in lists}
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self.ask(exchange)
            if answer.status_code != exchange.status:
                return answer
            found = {name: len(answer.json()[name]) for name in lists}
            if found == wanted:
                return answer
            assert time.monotonic() < deadline, f"{exchange.target} answers {found}, not {wanted}"
            time.sleep(0.1)

    def _translate(self, text: str) -> str:
        return _ID.sub(lambda match: self._ids.get(match[0], match[0]), text)

    def _translate_bytes(self, content: bytes) -> bytes:
        if content.startswith(b"PK"):  # a bundle
            return content
        return self._translate(content.decode()).encode()

    def _learn(self, recorded: Any, found: Any) -> None:  # Any: JSON
        if isinstance(recorded, dict) and isinstance(found, dict):
            for name, value in recorded.items():
                self._learn(value, found.get(name))
        elif isinstance(recorded, list) and isinstance(found, list):
            for before, after in zip(recorded, found, strict=False):
                self._learn(before, after)
        elif isinstance(recorded, str) and isinstance(found, str) and recorded != found and _ID.fullmatch(recorded):
            self._ids[recorded] = found
