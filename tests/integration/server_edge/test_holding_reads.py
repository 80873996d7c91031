"""No answer holds the interpreter: however much a GET asks for, the loop has its turn at least every 50 ms."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from drumline.contracts.programs import MAX_COLLECTIVES
from drumline.contracts.stacks import MAX_STACKS
from fuzz.world import V1
from support.edge import described_paths
from support.large_world import NAMES, SLICE, LargeWorld
from support.turns import Timed, hold_limit_s, timed_world

# Half a minute of processor time makes the world, which on a busy machine are minutes of wall time.
pytestmark = pytest.mark.timeout(900)


Query = Mapping[str, Any]  # Any: what httpx2 takes as query values
Costliest = Callable[[LargeWorld], tuple[str, Query]]
"""The path of a route, below the API's, and its query."""
ONE_PAGE: Query = {"limit": 200}


def _of(path: str, name: str, query: Query | None = None) -> Costliest:
    """The route at `path`, of what the world calls `name`."""
    return lambda world: (path.format(world.names[name]), query or {})


def _own(path: str, query: Query | None = None) -> Costliest:
    return lambda _: (path, query or {})


_WHERE = " or ".join(f"not (labels.label-{number} = a or labels.label-{number + 25} ~ b)" for number in range(25))
"""As many comparisons as a filter may have."""
_COLUMNS = [f"labels.label-{number}" for number in range(30)]

_COSTLIEST: Mapping[str, Costliest] = {
    "/batches": _own("/batches", ONE_PAGE),
    "/batches/{batch_id}": _of("/batches/{}", "batch"),
    "/batches/{batch_id}/outcomes": _of("/batches/{}/outcomes", "batch", {"limit": 1000, "sort": "best.m0"}),
    "/batches/{batch_id}/outcomes.csv": _of("/batches/{}/outcomes.csv", "batch"),
    "/bulk-changes/{bulk_id}": _of("/bulk-changes/{}", "bulk"),
    "/bundles/{sha256}": _of("/bundles/{}", "bundle"),
    "/bundles/{sha256}/upload": _of("/bundles/{}/upload", "bundle"),
    "/bundles/{sha256}/source": _of("/bundles/{}/source", "bundle"),
    "/devices": _own("/devices", ONE_PAGE),
    "/hosts": _own("/hosts", ONE_PAGE),
    "/jobs": _own("/jobs", ONE_PAGE),
    "/jobs/{name}": _of("/jobs/{}", "job"),
    "/jobs/{name}/changes": _of("/jobs/{}/changes", "job", ONE_PAGE),
    "/jobs/{name}/versions": _of("/jobs/{}/versions", "job", ONE_PAGE),
    "/jobs/{name}/versions/{number}": _of("/jobs/{}/versions/2", "job"),
    "/jobs/{name}/versions/{number}/diff": _of("/jobs/{}/versions/2/diff", "programs"),
    "/ledger": _own("/ledger", {"by": "host", **ONE_PAGE}),
    "/links": _own("/links", {"slice": SLICE, "limit": 200}),
    "/overview": _own("/overview"),
    "/plan/{plan_id}": _of("/plan/{}", "plan"),
    "/retention": _own("/retention"),
    "/runs": _own("/runs", {"limit": 200, "state": "QUEUED"}),
    "/runs, by fields": _own("/runs", {"limit": 200, "where": _WHERE, "sort": "-params.epochs", "column": _COLUMNS}),
    "/runs/{run_id}": _of("/runs/{}", "told"),
    "/runs/{run_id}/arrivals": _of("/runs/{}/arrivals", "gang", ONE_PAGE),
    "/runs/{run_id}/arrivals, earlier": _of("/runs/{}/arrivals", "gang", {"call": 50, **ONE_PAGE}),
    "/runs/{run_id}/artifacts": _of("/runs/{}/artifacts", "told", ONE_PAGE),
    "/runs/{run_id}/artifacts/{artifact_id}/file": _of("/runs/{}/file", "artifact"),
    "/runs/{run_id}/attempts": _of("/runs/{}/attempts", "gang", ONE_PAGE),
    "/runs/{run_id}/checkpoints": _of("/runs/{}/checkpoints", "told", ONE_PAGE),
    "/runs/{run_id}/events": _of("/runs/{}/events", "told", ONE_PAGE),
    "/runs/{run_id}/gaps": _of("/runs/{}/gaps", "told", ONE_PAGE),
    "/runs/{run_id}/ledger": _of("/runs/{}/ledger", "gang"),
    "/runs/{run_id}/logs": _of("/runs/{}/logs", "told", {"limit": 2**20}),
    "/runs/{run_id}/logs/raw": _of("/runs/{}/logs/raw", "told"),
    "/runs/{run_id}/logs/search": _of("/runs/{}/logs/search", "told", {"find": "\x01", "limit": 50_000}),
    "/runs/{run_id}/media": _of("/runs/{}/media", "told", ONE_PAGE),
    "/runs/{run_id}/media/at": _of("/runs/{}/media/at", "told", {"name": "table", "kind": "table"}),
    "/runs/{run_id}/media/at, text": _of("/runs/{}/media/at", "told", {"name": "text", "kind": "text"}),
    "/runs/{run_id}/media/histograms": _of("/runs/{}/media/histograms", "told", {"name": "weights", "most": 200}),
    "/runs/{run_id}/media/values": _of("/runs/{}/media/values", "told", {"name": "m", "kind": "text", **ONE_PAGE}),
    "/runs/{run_id}/media/{media_id}": _of("/runs/{}", "table"),
    "/runs/{run_id}/media/{media_id}/png": _of("/runs/{}/png", "image"),
    "/runs/{run_id}/profiles": _of("/runs/{}/profiles", "told", ONE_PAGE),
    "/runs/{run_id}/profiles/{profile_id}": _of("/runs/{}", "profile"),
    "/runs/{run_id}/profiles/{profile_id}/file": _of("/runs/{}/file", "profile"),
    "/runs/{run_id}/metrics": _of("/runs/{}/metrics", "told", {"buckets": 2000}),
    "/runs/{run_id}/metrics.{form}": _of("/runs/{}/metrics.csv", "told"),
    "/runs/{run_id}/metrics.{form}, table": _of("/runs/{}/metrics.parquet", "told"),
    "/runs/{run_id}/metrics/groups": _of("/runs/{}/metrics/groups", "told"),
    "/runs/{run_id}/metrics/names": _of("/runs/{}/metrics/names", "told", {"limit": 1000}),
    "/runs/{run_id}/non-finite": _of("/runs/{}/non-finite", "told"),
    "/runs/{run_id}/placement": _of("/runs/{}/placement", "gang"),
    "/runs/{run_id}/placement, variables": _of("/runs/{}/placement", "told"),
    "/runs/{run_id}/plan": _of("/runs/{}/plan", "told"),
    "/runs/{run_id}/replicas": _of("/runs/{}/replicas", "gang", ONE_PAGE),
    "/runs/{run_id}/reductions": _of("/runs/{}/reductions", "told", ONE_PAGE),
    "/runs/{run_id}/reductions/names": _of("/runs/{}/reductions/names", "told"),
    "/runs/{run_id}/reductions/{reduction_id}": _of("/runs/{}", "reduction"),
    "/runs/{run_id}/reductions/{reduction_id}/values": _of("/runs/{}/values", "whole"),
    "/runs/{run_id}/stacks": _of("/runs/{}/stacks", "gang"),
    "/runs/{run_id}/timeline": _of("/runs/{}/timeline", "gang", {"limit": 20, "pieces": 400}),
    "/runs/{run_id}/usage": _of("/runs/{}/usage", "gang", ONE_PAGE),
    "/runs:count": _own("/runs:count", {"where": _WHERE}),
    "/runs:fields": _own("/runs:fields", {"q": "label", "limit": 200}),
    "/runs:groups": _own("/runs:groups", {"by": "params.epochs", "where": _WHERE, "limit": 200}),
    "/run-views": _own("/run-views"),
    "/runs:details": lambda world: ("/runs:details", {"runs": [world.names["told"], *world.followed][:100]}),
    "/runs:metric-names": lambda world: ("/runs:metric-names", {"runs": world.names["told"], "limit": 1000}),
    "/runs:metrics": lambda world: (
        "/runs:metrics",
        {"runs": world.names["told"], "names": [f"metric-{name}" for name in range(NAMES)][:100], "buckets": 1200},
    ),
    "/runs:metrics.{form}": lambda world: ("/runs:metrics.arrow", {"runs": world.names["told"]}),
    "/sessions/current": _own("/sessions/current"),
    "/tokens": _own("/tokens", ONE_PAGE),
    "/version": _own("/version"),
    "/webhooks": _own("/webhooks", ONE_PAGE),
    "/webhooks/{webhook_id}": _of("/webhooks/{}", "webhook"),
    "/webhooks/{webhook_id}/deliveries": _of("/webhooks/{}/deliveries", "webhook", ONE_PAGE),
    "/worker/bundles/{sha256}": _of("/worker/bundles/{}", "bundle"),
    "/worker/members/{member_id}/artifacts/{sha256}": _of("/worker/members/{}", "content"),
}
"""The costliest request of each route that only reads; after a comma, what else is dear there."""
_ENDLESS = ("/stream",)
_ROUTES = sorted(path.removeprefix(V1) for path, operations in described_paths().items() if "get" in operations)


@pytest.fixture(scope="module")
def timed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LargeWorld, Timed]]:
    with timed_world(tmp_path_factory.mktemp("reads"), LargeWorld) as made:
        yield made


@pytest.fixture(scope="module")
def world(timed_server: tuple[LargeWorld, Timed]) -> LargeWorld:
    return timed_server[0]


@pytest.fixture(scope="module")
def timed(timed_server: tuple[LargeWorld, Timed]) -> Timed:
    return timed_server[1]


def test_every_route_that_reads_has_a_costly_case() -> None:
    """A new route needs one here, with as much behind it in `support.large_world` as there can be."""
    assert set(_ROUTES) == {*(route.partition(",")[0] for route in _COSTLIEST), *_ENDLESS}


@pytest.mark.parametrize("route", sorted(_COSTLIEST))
def test_no_answer_holds_the_interpreter(world: LargeWorld, timed: Timed, route: str) -> None:
    path, query = _COSTLIEST[route](world)
    client = world.worker_client if route.startswith("/worker/") else world.client

    def hold() -> float:
        timed.begin()
        answer = client.get(f"{V1}{path}", params=query)
        assert answer.status_code == 200, answer.text[:500]
        world.sizes[route] = len(answer.content)
        return timed.end()

    held = hold()
    limit = hold_limit_s()
    if held > limit:
        held = hold()  # once more: the machine may have been busy

    assert 0 < held <= limit, f"{world.sizes[route]} bytes"


@pytest.mark.parametrize("route", sorted(_ENDLESS))
def test_no_stream_holds_the_interpreter(world: LargeWorld, timed: Timed, route: str) -> None:
    timed.begin()
    topics = ",".join([*(f"run:{run}" for run in world.followed), "runs", "fleet"])
    begin = ",".join(f"{run}=0" for run in world.followed)
    with world.client.stream("GET", f"{V1}{route}", params={"topics": topics, "from": begin}) as answer:
        assert answer.status_code == 200, answer.read()[:500]
        told = (line for line in answer.iter_lines() if line.startswith("data:"))
        for _ in range(world.events_followed):
            next(told)

    assert 0 < timed.longest <= hold_limit_s()


def test_stacks_of_a_large_gang_are_cut_in_equal_shares_and_say_so(world: LargeWorld) -> None:
    answer = world.client.get(f"{V1}/runs/{world.names['gang']}/stacks")
    members = answer.json()["members"]
    assert len(members) == 100
    assert len(answer.content) < 2**22
    for standing in (member["standing"] for member in members):
        shown, mark = standing["python"].split("\n")
        assert mark == f"[{MAX_STACKS - len(shown)} more characters]"
        program = standing["program"]
        assert len(program["collectives"]) + program["more_collectives"] == MAX_COLLECTIVES
