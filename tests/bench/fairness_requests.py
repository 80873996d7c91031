"""For each route of the server, requests that might cost it much: what a stranger would try who wants its time."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from drumline.contracts.records import RECORDS_MEDIA_TYPE, frame
from drumline.contracts.sweeps import MAX_BATCH
from drumline_server.app.application import create_app, describe
from drumline_server.base.settings import Settings
from fuzz.malformed import Request
from fuzz.world import V1, World

Json = Any  # whatever JSON can hold
MEBIBYTE = 2**20
KEY = b"<a key of its own>"
"""Stands for an Idempotency-Key that is another one in each request, so that none is answered by an earlier one."""
JSON_BYTES = MEBIBYTE - 1024
"""Just under the cap of a JSON body, so that it is read and not refused for its length."""
PLACES = 12
"""Fields of a valid body that are blown up, at most."""
COOKIE = b'drumline="' + b"\\" * 15_000
"""What cost two seconds before anybody was asked for a token."""

SOURCES: Mapping[str, bytes] = {
    "f-strings": b"def main(run): pass\na=f'" + b"{a}" * (JSON_BYTES // 3) + b"'\n",
    "statements": b"def main(run): pass\n" + b"a;" * (JSON_BYTES // 2) + b"\n",
    "brackets": b"def main(run): pass\na=" + b"(" * JSON_BYTES,
    "operators": b"def main(run): pass\na=" + b"-" * JSON_BYTES + b"1\n",
    "attributes": b"def main(run): pass\na" + b".a" * (JSON_BYTES // 2) + b"\n",
    "functions": b"def main(run): pass\n" + b"def f(): 1\n" * (JSON_BYTES // 11),
}
"""Programs that Python reads for seconds."""


def costly_requests(world: World, host: str) -> dict[str, dict[str, bytes]]:
    """The bytes of each request, by route and by what is odd about it."""
    routes: dict[str, dict[str, bytes]] = {}
    for path, operations in describe(create_app(Settings()))["paths"].items():
        for method, operation in operations.items():
            body = world.body(path)
            valid = world.valid(method.upper(), path, body)
            if any(each["name"].lower() == "idempotency-key" for each in operation.get("parameters", ())):
                valid = _changed(valid, headers={"idempotency-key": KEY})
            made = dict(_heads(valid, _parameters(operation)))
            if method == "post":
                made |= dict(_bodies(valid, body))
            made |= dict(_special(world, path, valid))
            routes[f"{method.upper()} {path}"] = {name: raw(request, host) for name, request in made.items()}
    return routes


def raw(request: Request, host: str) -> bytes:
    """The request as bytes on the wire."""
    target = "?".join([request.path, *([urlencode(request.query)] if request.query else [])])
    headers = {"host": host.encode(), "content-length": str(len(request.content)).encode(), **request.headers}
    lines = [f"{request.method} {target} HTTP/1.1".encode(), *(f"{k}: ".encode() + v for k, v in headers.items())]
    return b"\r\n".join([*lines, b"", b""]) + request.content


def _parameters(operation: Mapping[str, Any]) -> list[str]:
    return [each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"]


def _heads(valid: Request, parameters: list[str]) -> Iterator[tuple[str, Request]]:
    yield "valid", valid
    yield "cookie", _changed(valid, headers={"cookie": COOKIE})
    yield "accept", _changed(valid, headers={"accept": b"a/b;q=0.1," * 1400, "if-none-match": b'"' * 1000})
    yield "largest page", _changed(valid, query=(("limit", "200"),))
    for name in parameters:
        yield f"long {name}", _changed(valid, query=((name, "%" * 3000),))
    for name in parameters[:3]:
        yield f"many {name}", _changed(valid, query=((name, "a"),) * 1500)


def _bodies(valid: Request, body: Json) -> Iterator[tuple[str, Request]]:
    shapes = {
        "lists": b"[" + b"[]," * (JSON_BYTES // 3) + b"[]]",
        "objects": b"[" + b"{}," * (JSON_BYTES // 3) + b"{}]",
        "keys": ("{" + ",".join(f'"{number:x}":0' for number in range(JSON_BYTES // 9)) + "}").encode(),
        "depth": b"[" * JSON_BYTES,
        "digits": b"1" * JSON_BYTES,
        "escapes": b'"' + b"\\u00e9" * (JSON_BYTES // 6) + b'"',
        "torn": b'{"a":"' + b"\\" * (JSON_BYTES // 2 * 2),
    }
    for name, content in shapes.items():
        yield name, _changed(valid, content=content)
    for place in list(_places(body, ()))[:PLACES]:
        blown = _blown_up(body, place)
        if blown is not None:
            yield f"large {'.'.join(map(str, place))}", _changed(valid, content=json.dumps(blown).encode())


def _special(world: World, path: str, valid: Request) -> Iterator[tuple[str, Request]]:
    if path == f"{V1}/bundles" and valid.method == "POST":
        for name, source in SOURCES.items():
            upload = _changed(valid, content=source, headers={"content-type": b"text/x-python"})
            yield f"source of {name}", _changed(upload, query=(("filename", "job.py"),))
    run = world.bodies()["/runs"]
    if path == f"{V1}/runs:batch":
        runs = [{**run, "parameters": {"learning_rate": number / 1000}} for number in range(1000)]
        yield "a thousand runs", _changed(valid, content=json.dumps({"name": "many", "runs": runs}).encode())
        records = frame(b'{"name": "many"}', [json.dumps(run).encode()] * MAX_BATCH)
        yield (
            "ten thousand runs",
            _changed(valid, content=records, headers={"content-type": RECORDS_MEDIA_TYPE.encode()}),
        )
    if path == f"{V1}/runs:sweep":
        points = {"learning_rate": [number / 1000 for number in range(1000)]}
        sweep = {"name": "many", "run": {**run, "parameters": {}}, "sweep": {"kind": "grid", "parameters": points}}
        yield "a thousand points", _changed(valid, content=json.dumps(sweep).encode())
        most = {"learning_rate": [number / 100 for number in range(100)], "epochs": list(range(MAX_BATCH // 100))}
        large = {**sweep, "sweep": {"kind": "grid", "parameters": most}}
        yield "ten thousand points", _changed(valid, content=json.dumps(large).encode())
        space = {"learning_rate": {"low": -1e308, "high": 1e308, "scale": "linear"}}
        drawn = {**sweep, "sweep": {"kind": "random", "parameters": space, "runs": 1000, "seed": 1}}
        yield "a thousand draws", _changed(valid, content=json.dumps(drawn).encode())
    if path.endswith("/events") and valid.method == "POST":
        yield from _telemetry(world, path, valid)


def _telemetry(world: World, path: str, valid: Request) -> Iterator[tuple[str, Request]]:
    body = world.body(path)
    metrics, logged = (next(each for each in body["events"] if each["kind"] == kind) for kind in ("metrics", "log"))
    values = 10_000
    columns = {"names": ["loss"] * values, "steps": [*range(values)], "times": metrics["times"][:1] * values}
    batch = {**body, "events": [{**metrics, **columns, "values": [0.1] * values, "seq": 1}]}
    yield "ten thousand values", _changed(valid, content=json.dumps(batch).encode())
    lines = [
        {**logged, "text": "x" * 1000 + "\n", "seq": number, "offset": 1001 * (number - 1)} for number in range(1, 900)
    ]
    yield "a mebibyte of lines", _changed(valid, content=json.dumps({**body, "events": lines}).encode())


def _changed(
    request: Request,
    *,
    headers: Mapping[str, bytes] | None = None,
    query: tuple[tuple[str, str], ...] = (),
    content: bytes | None = None,
) -> Request:
    return Request(
        request.method,
        request.path,
        request.query + query,
        {**request.headers, **(headers or {})},
        request.content if content is None else content,
    )


def _places(value: Json, above: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield (*above, step)
        yield from _places(inner, (*above, step))


def _blown_up(body: Json, place: tuple[Any, ...]) -> Json:
    """A copy with what stands there a mebibyte long; None for what has no length."""
    body = copy.deepcopy(body)
    *above, last = place
    holder = body
    for step in above:
        holder = holder[step]
    value = holder[last]
    room = JSON_BYTES - len(json.dumps(body))
    match value:
        case str():
            holder[last] = value + "x" * room
        case list() if value:
            holder[last] = value * max(2, room // (len(json.dumps(value)) + 2))
        case dict():
            holder[last] = {f"k{number}": number for number in range(room // 20)}
        case int() | float() if not isinstance(value, bool):
            holder[last] = [0] * (room // 3)
        case _:
            return None
    return body


def host_of(url: str) -> str:
    """`127.0.0.1:7700` of an address."""
    return urlsplit(url).netloc
