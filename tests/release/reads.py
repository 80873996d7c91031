"""Reads all that the API shows of a server's data, list by list and run by run."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx2

_OF_RUN = (
    "", "/attempts", "/checkpoints", "/gaps", "/logs", "/logs/raw", "/placement", "/plan", "/reductions",
    "/reductions/names", "/stacks",
)  # fmt: skip
_LISTS = ("runs", "jobs", "batches", "hosts", "devices", "tokens")
WIDTH = 2_000
"""Steps that are read at a time, so that each has a bucket of its own."""


def read_all(http: httpx2.Client) -> None:
    """Every list, and all of every run, job, batch and bundle. Raises unless all are answered with success."""
    found = {name: [*_items(http, f"/{name}")] for name in _LISTS}
    for path in ("/overview", "/version", "/runs?sort=created&state=FAILED&state=CANCELLED", "/runs?q=measure"):
        _get(http, path)
    bundles = set()
    for run in found["runs"]:
        bundles.add(_read_run(http, run["id"]))
    for job in found["jobs"]:
        _read_job(http, job["name"])
    for batch in found["batches"]:
        for rest in ("", "/outcomes", "/outcomes.csv"):
            _get(http, f"/batches/{batch['id']}{rest}")
    for bundle in sorted(bundles):
        _get(http, f"/bundles/{quote(bundle, safe=':')}")
        _get(http, f"/bundles/{quote(bundle, safe=':')}/source", may_lack=True)


def _read_run(http: httpx2.Client, run: str) -> str:
    """Gives the id of its bundle."""
    details = _get(http, f"/runs/{run}")
    for rest in _OF_RUN:
        _get(http, f"/runs/{run}{rest}", may_lack=True)
    _items_of_events(http, run)
    for attempt in _get(http, f"/runs/{run}/attempts")["items"]:
        for member in attempt["members"]:
            _get(http, f"/runs/{run}/logs?attempt={attempt['id']}&member={member['id']}&limit=1048576")
            _get(http, f"/runs/{run}/logs/raw?attempt={attempt['id']}&member={member['id']}", may_lack=True)
        _get(http, f"/runs/{run}/metrics?attempt={attempt['id']}")
    most = max((series["last_step"] for series in _get(http, f"/runs/{run}/metrics")["series"]), default=-1)
    for start in range(0, most + 1, WIDTH):
        _get(http, f"/runs/{run}/metrics?buckets={WIDTH}&from={start}&to={start + WIDTH - 1}")
    for reduction in [*_items(http, f"/runs/{run}/reductions")][:12]:
        _get(http, f"/runs/{run}/reductions/{reduction['id']}")
    return str(details["spec"]["program"]["bundle"])


def _read_job(http: httpx2.Client, name: str) -> None:
    path = f"/jobs/{quote(name, safe='')}"
    _get(http, path)
    _get(http, f"{path}/changes")
    versions = [*_items(http, f"{path}/versions")]
    for version in versions:
        _get(http, f"{path}/versions/{version['number']}")
    if len(versions) > 1:
        _get(http, f"{path}/versions/2/diff")


def _items_of_events(http: httpx2.Client, run: str) -> None:
    after = 0
    while True:
        items = _get(http, f"/runs/{run}/events?after={after}&limit=200")["items"]
        if not items:
            return
        after = items[-1]["seq"]


def _items(http: httpx2.Client, path: str) -> Iterator[Any]:  # Any: whatever the list holds
    cursor = None
    while True:
        page = _get(http, f"{path}?limit=50" + (f"&cursor={quote(cursor)}" if cursor else ""))
        yield from page["items"]
        cursor = page.get("next")
        if cursor is None:
            return


def _get(http: httpx2.Client, path: str, *, may_lack: bool = False) -> Any:  # Any: JSON
    answer = http.get(path)
    if may_lack and answer.is_client_error:
        return None
    answer.raise_for_status()
    return answer.json() if "json" in answer.headers.get("content-type", "") else answer.content
