"""No request holds the interpreter: whatever its body, the loop has its turn at least every 50 ms of processor time."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from drumline.contracts.events import MAX_REPLICAS_TOLD
from drumline.contracts.records import RECORDS_MEDIA_TYPE, frame
from drumline.contracts.worker_api import MAX_HOST_DEVICES
from fuzz.world import V1, World
from support.edge import described_paths
from support.large_world import whole_reduction
from support.turns import Timed, hold_limit_s, timed_world

MIB = 2**20
_HEAD = b'{"parameters":{"x":'


@dataclass(frozen=True)
class Costly:
    """A body that is dear to read, for its size."""

    content: bytes
    media_type: str = "application/json"


def _fill(unit: bytes, size: int = MIB - 4096) -> bytes:
    return unit * (size // len(unit))


def _unknown_fields() -> bytes:
    return b"{" + b",".join(b'"f%d":1' % number for number in range(60_000)) + b"}"


def _in(body: Any, path: str, value: bytes) -> bytes:
    """`body` as JSON, with `value` in place of the field at `path`."""
    marked = json.loads(json.dumps(body))
    *above, last = path.split(".")
    holder = marked
    for step in above:
        holder = holder[int(step) if isinstance(holder, list) else step]
    holder[int(last) if isinstance(holder, list) else last] = "@@"
    return json.dumps(marked).encode().replace(b'"@@"', value, 1)


def _anywhere(body: Any) -> dict[str, Costly]:
    """What is dear wherever it stands: junk as the whole body, and in its first field."""
    shapes = {
        "empty lists": b"[" + _fill(b"[],") + b"1]",
        "numbers": b"[" + _fill(b"1,") + b"1]",
        "deep": _fill(b"["),
        "unknown fields": _unknown_fields(),
        "escapes": b'"' + _fill(b"\\n") + b'"',
        "quotes": b'"' + _fill(b'\\"'),
        "digits": _fill(b"1"),
    }
    first = next(iter(body), None) if isinstance(body, dict) else None
    inside = {f"{name} in {first}": Costly(_in(body, first, shape)) for name, shape in shapes.items()} if first else {}
    return {**{name: Costly(shape) for name, shape in shapes.items()}, **inside}


def _of_parameters(body: Any, path: str) -> dict[str, Costly]:
    values = {
        "most values": b'{"x":[' + b"1," * 9_900 + b"1]}",
        "most empty lists": b'{"x":[' + b"[]," * 9_900 + b"1]}",
        "too many values": b'{"x":[' + _fill(b"[],", 180_000) + b"1]}",
        "long text": b'{"x":"' + _fill(b"\\u00e9") + b'"}',
        "long name": b'{"' + _fill(b"x") + b'":1}',
    }
    return {name: Costly(_in(body, path, value)) for name, value in values.items()}


def _runs_batch(body: Any) -> dict[str, Costly]:
    run = json.dumps(body["runs"][0]).encode()
    wide = _in(body["runs"][0], "parameters", b'{"learning_rate":[' + b"1," * 9_900 + b"1]}")
    return {
        **_of_parameters(body, "runs.0.parameters"),
        "most runs": Costly(frame(b"{}", [run] * 10_000), RECORDS_MEDIA_TYPE),
        "large runs": Costly(frame(b"{}", [wide] * 380), RECORDS_MEDIA_TYPE),
        "wrong runs": Costly(frame(b"{}", [b"[]"] * 10_000), RECORDS_MEDIA_TYPE),
        "junk runs": Costly(frame(b"{}", [b"[" + b"[]," * 20_000 + b"1]"] * 100), RECORDS_MEDIA_TYPE),
        "one line": Costly(b"[" + _fill(b"[],") + b"1]", RECORDS_MEDIA_TYPE),
    }


def _sweep(body: Any) -> dict[str, Costly]:
    ranges = b"{" + b",".join(b'"p%d":{"low":1,"high":1.00001}' % number for number in range(200)) + b"}"
    random = b'{"kind":"random","runs":2000,"parameters":' + ranges + b"}"
    points = b'{"kind":"list","points":[' + b",".join(b'{"epochs":%d}' % number for number in range(10_000)) + b"]}"
    grid = b'{"kind":"grid","parameters":{"epochs":[' + b",".join(b"%d" % number for number in range(10_000)) + b"]}}"
    return {name: Costly(_in(body, "sweep", value)) for name, value in [("r", random), ("l", points), ("g", grid)]}


def _events(body: Any) -> dict[str, Costly]:
    kinds = {event["kind"]: {**event, "seq": 1} for event in body["events"]}
    log = kinds["log"]
    result = b'{"kind":"result","seq":1,"at":"2026-01-01T00:00:00Z","value":[' + b"[]," * 60_000 + b"1]}"
    points = b"[" + b"1," * 16_000 + b"1]"
    metrics = b'{"kind":"metrics","seq":1,"at":0,"names":%b,"steps":%b,"times":%b,"values":%b}' % (
        b"[" + b'"l",' * 16_000 + b'"l"]', points, points, points,
    )  # fmt: skip
    head = json.dumps({name: value for name, value in body.items() if name != "events"}).encode()
    logs = [json.dumps({**log, "seq": number}).encode() for number in range(1, 5_001)]
    junk = b'{"kind":"log","seq":1,"at":0,"stream":[' + b"[]," * 79_000 + b"1]}"
    wide = {kind: [_widest(kinds[kind], fields)] for kind, fields in _WIDE.items()}
    whole = json.dumps({**whole_reduction(), "kind": "reduction", "seq": 1, "at": body["events"][0]["at"]}).encode()
    many = {"logs": logs, "result": [result], "whole": [whole], "metrics": [metrics] * 20, "junk": [junk], **wide}
    return {name: Costly(frame(head, records), RECORDS_MEDIA_TYPE) for name, records in many.items()} | {
        "one text": Costly(_in(body, "events", b"[" + _fill(b"[],", 2 * MIB) + b"1]"))
    }


_WIDE = {"placement": ["replicas"], "variable": ["homes"], "reduction": ["inputs", "counts"]}
"""Lists of an event that are as long as the strategy is wide."""


def _widest(event: Any, fields: list[str]) -> bytes:
    """With as many entries in those lists as a record may hold."""
    entry = "".join(json.dumps(event[field][0]) + "," for field in fields)
    most = min(MAX_REPLICAS_TOLD, 150_000 // sum(map(entry.count, ",[{")))
    return json.dumps({**event, **{field: event[field][:1] * most for field in fields}}).encode()


def _most(body: Any, field: str, most: int) -> Costly:
    entry = json.dumps(body[field][0]).encode()
    return Costly(_in(body, field, b"[" + b",".join([entry] * most) + b"]"))


def _registration(body: Any) -> dict[str, Costly]:
    return {f"most {field}": _most(body, field, MAX_HOST_DEVICES) for field in ("devices", "members")}


def _heartbeat(body: Any) -> dict[str, Costly]:
    return {"most members": _most(body, "members", MAX_HOST_DEVICES)}


_OWN: dict[str, Callable[[Any], dict[str, Costly]]] = {
    "/runs": lambda body: _of_parameters(body, "parameters"),
    "/runs:batch": _runs_batch,
    "/runs:sweep": _sweep,
    "/plan": lambda body: _of_parameters(body, "run.parameters"),
    "/worker/register": _registration,
    "/worker/heartbeat": _heartbeat,
    "/worker/members/{member_id}/events": _events,
}
"""Bodies that are dear to one route. Every route that takes JSON has those of `_anywhere`."""
_ROUTES = {
    path.removeprefix(V1): method.upper()
    for path, operations in sorted(described_paths().items())
    for method, operation in operations.items()
    if "application/json" in operation.get("requestBody", {}).get("content", {})
}
"""The method of each."""


@pytest.fixture(scope="module")
def timed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Timed]]:
    with timed_world(tmp_path_factory.mktemp("holding"), World) as made:
        yield made


@pytest.fixture(scope="module")
def world(timed_server: tuple[World, Timed]) -> World:
    return timed_server[0]


@pytest.fixture(scope="module")
def timed(timed_server: tuple[World, Timed]) -> Timed:
    return timed_server[1]


@pytest.fixture(scope="module")
def client(world: World) -> httpx2.Client:
    return world.server.client()


@pytest.mark.parametrize("route", _ROUTES)
def test_no_body_holds_the_interpreter(world: World, timed: Timed, client: httpx2.Client, route: str) -> None:
    path = f"{V1}{route}"
    body = world.body(path)
    assert body is not None, f"{route} has no body in fuzz.world: give it one"
    bodies = {**_anywhere(body), **_OWN.get(route, lambda _: {})(body)}
    valid = world.valid(_ROUTES[route], path, body)
    headers = {name: value for name, value in valid.headers.items() if name != "content-type"}

    def hold(name: str, costly: Costly, key: bytes) -> float:
        timed.begin()
        sent = {**headers, "idempotency-key": key + name.encode(), "content-type": costly.media_type.encode()}
        raw = [(key.encode(), value) for key, value in sent.items()]
        answer = client.request(valid.method, valid.path, content=costly.content, headers=raw)
        assert answer.status_code < 500, (name, answer.text[:500])
        return timed.end()

    held = {name: hold(name, costly, b"") for name, costly in bodies.items()}
    limit = hold_limit_s()
    for key in (b"again", b"once more"):  # where it was long: the machine may have been busy
        held.update({name: hold(name, bodies[name], key) for name, longest in held.items() if longest > limit})

    assert min(held.values()) > 0
    assert {name: round(longest, 3) for name, longest in held.items() if longest > limit} == {}


def test_an_object_far_down_a_long_list_is_refused_by_its_place(world: World, client: httpx2.Client) -> None:
    path = f"{V1}/worker/members/{{member_id}}/events"
    body = world.body(path)
    event = {**next(event for event in body["events"] if event["kind"] == "placement"), "seq": 1}
    event["replicas"] = [*event["replicas"] * 2_500, {"replica": -1, "devices": []}]
    valid = world.valid("POST", path, {**body, "events": [event]})

    answer = client.post(valid.path, content=valid.content, headers={k: v.decode() for k, v in valid.headers.items()})

    assert answer.status_code == 422, answer.text[:500]
    assert "events.0.replicas.2500.replica" in answer.text
