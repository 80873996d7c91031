"""Sends every route its share of odd requests, and counts what came back."""

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from urllib.parse import urlencode

import httpx2
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode

from drumline.contracts.problems import PROBLEM_MEDIA_TYPE
from drumline.contracts.records import MAX_JSON_BYTES
from drumline_server.app.application import create_app, describe
from drumline_server.base.settings import Settings
from fuzz.bounds import Bounds
from fuzz.malformed import Request, malformed
from fuzz.world import World

HANG_S = 5.0
"""An answer that takes longer counts as none."""
STREAM = "/api/v1/stream"
BEFORE_US = "Invalid HTTP request received."
"""What uvicorn answers to bytes that are no HTTP; they never reach the application."""
Answer = tuple[int, str, str]
"""Status, media type, the beginning of the text; status 0 where there is none."""


@schemathesis.serializer("application/zip", "text/x-python")
def as_bytes(_: Any, value: Any) -> bytes:  # Any: schemathesis' context, and whatever it made up
    """The bytes of an upload."""
    return value if isinstance(value, bytes) else str(getattr(value, "data", value)).encode("utf-8", "replace")


@dataclass
class Report:
    """What a campaign found."""

    requests: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    routes: dict[str, Counter[str]] = field(default_factory=dict)
    slowest_s: float = 0.0
    slowest: str = ""
    failures: list[dict[str, Any]] = field(default_factory=list)
    """Answers of 500 and above, hangs, broken connections, errors that are no problem+json; broken invariants."""

    def as_json(self) -> dict[str, Any]:
        """For a file."""
        return vars(self)


class Campaign:
    """Requests to one server, counted."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._http = httpx2.Client(base_url=world.server.url, timeout=2 * HANG_S)
        self.report = Report()

    def run(self, wanted: int, first_seed: int = 0, tell: Callable[[Report], None] = lambda report: None) -> Report:
        """At least so many, the same share to each route: half from the schema, half from valid ones made odd."""
        document = describe(create_app(Settings()))
        self._bounds = Bounds(document)
        schema = schemathesis.openapi.from_dict(document)
        operations: list[Any] = [found.ok() for found in schema.get_all_operations()]  # type: ignore[union-attr] # raises
        share = -(-wanted // len(operations))
        for number, operation in enumerate(operations):
            self._world.refresh()
            self._fuzz(operation, share, first_seed + number)
            broken = self._world.breaches()
            self.report.failures += [{"route": operation.path, "broken": breach} for breach in broken]
            tell(self.report)
        self._http.close()
        return self.report

    def _fuzz(self, operation: Any, share: int, number: int) -> None:  # Any: schemathesis' operation, of no public type
        route = f"{operation.method.upper()} {operation.path}"
        before = self.report.requests
        if operation.path != STREAM:
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                if mode is GenerationMode.POSITIVE or _has_input(operation):
                    self._from_schema(operation, mode, route, share // 4, number)
        self._beyond_bounds(operation, route)
        valid = self._world.valid(operation.method.upper(), operation.path, self._world.body(operation.path))
        odd = malformed(valid, self._world.body(operation.path), _parameters(operation))
        rest = share - (self.report.requests - before)

        def send(request: Request) -> None:
            self._count(route, partial(self._send, request), request)

        self._ask(odd, rest, number, send)

    def _beyond_bounds(self, operation: Any, route: str) -> None:  # Any: schemathesis' operation
        """Each field beyond its bound: refused, naming the field."""
        body = self._world.body(operation.path)
        schema = _body_schema(operation)
        if body is None or schema is None:
            return
        for beyond in self._bounds.beyond(schema, body):
            content = json.dumps(beyond.body).encode()
            if len(content) > MAX_JSON_BYTES:
                continue
            request = replace(self._world.valid(operation.method.upper(), operation.path, None), content=content)
            status, told = self._count(route, partial(self._send, request), beyond.path)
            if not 400 <= status < 500 or beyond.field not in told:
                self.report.failures.append(
                    {"route": route, "beyond": list(beyond.path), "status": status, "answer": told, "sent": ""}
                )

    def _from_schema(self, operation: Any, mode: GenerationMode, route: str, count: int, number: int) -> None:
        headers = {"Authorization": f"Bearer {self._world.token(operation.path)}"}

        def send(case: Any) -> None:
            def ask() -> Answer:
                answer = case.call(base_url=self._world.server.url, headers=headers, timeout=2 * HANG_S)
                (media_type,) = answer.headers.get("content-type", [""])
                return answer.status_code, media_type, answer.text[:2000]

            self._count(route, ask, case)

        self._ask(operation.as_strategy(generation_mode=mode), count, number, send)

    def _ask(self, strategy: st.SearchStrategy[Any], count: int, number: int, send: Callable[[Any], None]) -> None:
        if count < 1:
            return

        @seed(number)
        @settings(
            max_examples=count, deadline=None, database=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(strategy)
        def ask(made: Any) -> None:
            send(made)

        ask()

    def _send(self, request: Request) -> Answer:
        headers = [(name.encode(), value) for name, value in request.headers.items()]
        target = "?".join([request.path, *([urlencode(request.query, errors="replace")] if request.query else [])])
        url = httpx2.URL(self._world.server.url).copy_with(raw_path=target.encode())
        with self._http.stream(request.method, url, headers=headers, content=request.content) as answer:
            live = request.path == STREAM and answer.status_code == httpx2.codes.OK
            told = "" if live else answer.read()[:2000].decode("utf-8", "replace")
            return answer.status_code, answer.headers.get("content-type", ""), told

    def _count(self, route: str, ask: Callable[[], Answer], sent: object) -> tuple[int, str]:
        """The status and the text, counted."""
        took_s, (status, media_type, told) = _timed(ask)
        if took_s > HANG_S and status < 500:
            took_s, (status, media_type, told) = _timed(ask)  # a busy machine is slow once, a hang every time
        outcome = f"{status // 100}xx" if status else "none"
        self.report.requests += 1
        self.report.statuses[outcome] += 1
        self.report.routes.setdefault(route, Counter())[outcome] += 1
        if took_s > self.report.slowest_s:
            self.report.slowest_s, self.report.slowest = took_s, f"{route}: {sent!r}"[:1000]
        untyped = status >= 400 and media_type != PROBLEM_MEDIA_TYPE and told != BEFORE_US
        if status == 0 or status >= 500 or untyped or took_s > HANG_S:
            self.report.failures.append({"route": route, "took_s": took_s, "answer": told, "sent": repr(sent)[:4000]})
        return status, told


def _timed(ask: Callable[[], Answer]) -> tuple[float, Answer]:
    began = time.monotonic()
    try:
        answer = ask()
    except (httpx2.TransportError, requests.RequestException) as error:
        answer = (0, "", repr(error))
    return time.monotonic() - began, answer


def _body_schema(operation: Any) -> dict[str, Any] | None:  # Any: schemathesis' operation, JSON schema
    raw = operation.definition.raw.get("requestBody", {}).get("content", {})
    found: dict[str, Any] | None = raw.get("application/json", {}).get("schema")
    return found


def _parameters(operation: Any) -> list[str]:  # Any: schemathesis' operation
    return [parameter.name for parameter in operation.query]


def _has_input(operation: Any) -> bool:  # Any: schemathesis' operation
    return bool(operation.body or operation.query or operation.path_parameters)
