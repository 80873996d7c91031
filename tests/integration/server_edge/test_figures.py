"""What Prometheus reads of a server: figures that follow runs, with names that no caller can add to."""

import json
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from drumline.contracts.base import new_id
from drumline.contracts.events import EventBatch
from drumline.contracts.worker_api import KEY_HEADER
from drumline_server.services import overview
from support.api_process import ApiProcess
from support.core import Member, key_of
from support.edge import EdgeServer
from support.processes import wait_until

GRAFANA = Path(__file__).resolve().parents[3] / "docs" / "grafana.json"
_SETTLED_S = overview.SETTLED_US / 1e6


def families(server: EdgeServer) -> dict[str, Metric]:
    answer = server.admin.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {family.name: family for family in text_string_to_metric_families(answer.text)}


def value(server: EdgeServer, name: str, **labels: str) -> float:
    """Of one sample; 0 where there is none."""
    family = next(family for each, family in families(server).items() if name.startswith(each))
    found = [one.value for one in family.samples if one.name == name and labels.items() <= one.labels.items()]
    return sum(found)


@pytest.mark.both_databases
def test_figures_follow_a_run_from_the_queue_to_its_end(any_server: EdgeServer) -> None:
    core = any_server.core
    families(any_server)
    worker = core.add_worker("alpha", 4)
    core.submit(resources={"replicas": 2})
    core.clock.advance(3)
    assert value(any_server, "drumline_queue_depth") == 1
    assert value(any_server, "drumline_queue_oldest_seconds") == 3

    core.schedule()
    member = worker.take().start()
    assert value(any_server, "drumline_runs", state="RUNNING") == 1
    assert value(any_server, "drumline_runs", state="QUEUED") == 0
    assert value(any_server, "drumline_devices", platform="cpu", state="HELD") == 2
    assert value(any_server, "drumline_host_devices_held", host="alpha") == 2
    assert value(any_server, "drumline_host_members", host="alpha") == 1
    core.clock.advance(7)
    assert value(any_server, "drumline_host_heartbeat_age_seconds", host="alpha") == 7
    assert value(any_server, "drumline_lease_age_seconds") == 7

    member.end()
    core.clock.advance(_SETTLED_S + 1)
    for _ in range(2):  # whoever looks again counts nothing twice
        assert value(any_server, "drumline_scheduling_seconds_sum") == 3
        assert value(any_server, "drumline_run_seconds_sum", state="SUCCEEDED") == 7
        assert value(any_server, "drumline_run_seconds_count", state="SUCCEEDED") == 1
    assert value(any_server, "drumline_lease_age_seconds") == 0, "nothing lives there"


def test_many_waits_and_ends_are_read_piece_by_piece(server: EdgeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "MAX_READ", 2)
    worker = server.core.add_worker("alpha", 5)
    for _ in range(5):
        server.core.submit()
    server.core.schedule()
    for member in [Member(worker, worker.claim(notice)) for notice in worker.beat().assigned]:
        member.start().end()
        server.core.clock.advance(0.5)
    server.core.clock.advance(_SETTLED_S)

    seen = [value(server, "drumline_scheduling_seconds_count") for _ in range(4)]
    assert seen == [2, 4, 5, 5]
    assert value(server, "drumline_run_seconds_count", state="SUCCEEDED") == 5


def test_telemetry_is_counted_with_its_lag(server: EdgeServer) -> None:
    worker = server.core.add_worker()
    server.core.submit(resources={"replicas": 8})
    server.core.schedule()
    member = worker.take().start()
    server.core.clock.advance(2)
    event = member.event("log", stream="stdout", text="x", offset=0)
    body = EventBatch(fence=member.claimed.fence, incarnation=worker.incarnation, first_seq=event.seq, events=(event,))
    client = server.client(server.worker_token(worker.host_id), **{KEY_HEADER: key_of(member.id).get_secret_value()})
    before = value(server, "drumline_telemetry_events_total")

    sent = client.post(
        f"/api/v1/worker/members/{member.id}/events",
        content=body.model_dump_json(),
        headers={"content-type": "application/json"},
    )

    assert sent.status_code == 200, sent.text
    assert value(server, "drumline_telemetry_events_total") == before + 1
    assert value(server, "drumline_telemetry_lag_seconds_count") == before + 1


def test_no_caller_adds_a_name(server: EdgeServer) -> None:
    for _ in range(3):
        server.admin.get(f"/api/v1/runs/{new_id('run')}")
        server.admin.request("BREW", f"/{new_id('run')}")
        server.admin.get(f"/nothing/{new_id('run')}")
    routes = {one.labels["route"] for one in families(server)["drumline_http_requests"].samples}
    methods = {one.labels["method"] for one in families(server)["drumline_http_requests"].samples}

    assert "/api/v1/runs/{run_id}" in routes
    assert not [route for route in routes if "run_" in route.replace("run_id", "")], routes
    assert methods <= {"GET", "POST", "other"}


def test_the_grafana_dashboard_asks_for_figures_that_are_there(server: EdgeServer) -> None:
    server.core.add_worker()
    families(server)  # which is an answer to count
    told = {one.name for family in families(server).values() for one in family.samples}
    told |= {f"{family.name}_{part}" for family in families(server).values() for part in ("bucket", "sum", "count")}
    asked = set(re.findall(r"\b(?:drumline|process)_[a-z_]+", json.dumps(_expressions())))

    assert len(asked) >= 15
    assert asked <= told | {"drumline_notifications_total"}, asked - told


def test_every_figure_is_explained_to_operators(server: EdgeServer) -> None:
    guide = GRAFANA.with_name("operators.md").read_text()
    ours = {name for name in families(server) if name.startswith("drumline_")}
    assert not {name for name in ours if f"`{name}" not in guide}


def _expressions() -> list[str]:
    dashboard: Any = json.loads(GRAFANA.read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]


def test_lines_of_the_log_are_json_with_the_ids_of_request_and_run(tmp_path: Path) -> None:
    run = new_id("run")
    chosen = {"DRUMLINE_LOG_FORMAT": "json", "DRUMLINE_ACCESS_LOG": "true"}
    server = ApiProcess(tmp_path, settings=chosen)
    server.start()
    try:
        headers = {"Authorization": f"Bearer {server.token}"}
        answer = httpx2.get(f"{server.url}/api/v1/runs/{run}", headers=headers, timeout=30)
        request = answer.headers["x-request-id"]
        wait_until(lambda: request in server.said, timeout_s=20, what="the request is in the log")
    finally:
        server.stop()

    lines = [json.loads(line) for line in server.said.splitlines()]
    (line,) = [line for line in lines if line.get("request") == request]
    assert (line["run"], line["status"], line["route"]) == (run, 404, "/api/v1/runs/{run_id}")
    assert {"time", "level", "logger", "message"} <= set.intersection(*(set(line) for line in lines))
