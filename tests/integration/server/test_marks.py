"""Labels, notes, stars and the archive: of one run after the fact, and of many by one request, a part at a time."""

from typing import Any

import pytest
from sqlalchemy import select

from drumline.contracts import api
from drumline_server.services import run_changes
from drumline_server.storage.models import Audit
from support.core import TESTER, Core
from support.edge import EdgeServer
from support.run_lists import change_runs

pytestmark = pytest.mark.both_databases

V1 = "/api/v1"


def asked(server: EdgeServer, **body: Any) -> tuple[int, int]:
    """A bulk change: of how many runs, and how many of them it changed."""
    answer = server.admin.post(f"{V1}/runs:change", json=body)
    assert answer.status_code == 202, answer.text
    change_runs(server.core)
    change = server.admin.get(f"{V1}/bulk-changes/{answer.json()['id']}").json()
    assert (change["state"], change["done"]) == ("DONE", change["total"])
    return change["total"], change["changed"]


def test_labels_note_star_and_archive_change_after_the_end_and_are_written_down(server: EdgeServer) -> None:
    server.core.add_worker()
    run = server.core.submit(labels={"team": "blue", "kind": "trial"})
    server.core.cancel(run.id)
    address = f"{V1}/runs/{run.id}"
    change = {"labels": {"team": None, "kind": "best", "new": "1"}, "note": "kept", "starred": True, "archived": True}
    changed = server.admin.patch(address, json=change).json()

    assert (changed["labels"], changed["note"], changed["starred"]) == ({"kind": "best", "new": "1"}, "kept", True)
    assert changed["archived_at"] is not None
    listed = server.admin.get(
        f"{V1}/runs", params={"where": "archived and labels.kind = best", "label": "new=1"}
    ).json()
    assert [each["id"] for each in listed["items"]] == [run.id]
    assert server.admin.get(f"{V1}/runs:count", params={"where": "labels.kind = trial and archived"}).json() == {
        "matching": 0
    }
    acts = server.core.read(lambda session: session.scalars(select(Audit).where(Audit.target == run.id)).all())
    assert [act.body for act in acts if act.action == "run.mark"] == [change]
    assert server.client(server.token("viewer")).patch(address, json=change).status_code == 403


def test_a_note_that_nobody_can_see_is_none(server: EdgeServer) -> None:
    server.core.add_worker()
    run = server.core.submit()
    address = f"{V1}/runs/{run.id}"
    for note, kept in ((" seen ", " seen "), (" \n\t", "")):
        assert server.admin.patch(address, json={"note": note}).json()["note"] == kept
        assert server.admin.get(f"{V1}/runs:count", params={"where": "note"}).json() == {"matching": bool(kept)}


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"labels": {f"k{place}": "v" for place in range(65)}}, "65 labels"),
        ({"labels": {"": "v"}}, "labels"),
        ({"note": "n" * 2001}, "note"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_mark_that_cannot_be_is_refused(server: EdgeServer, body: dict[str, Any], named: str) -> None:
    run = server.core.queue()
    answer = server.admin.patch(f"{V1}/runs/{run.id}", json=body)

    assert answer.status_code == 422
    assert named in answer.text


def test_all_that_match_are_changed_by_one_request(server: EdgeServer) -> None:
    runs = [server.core.queue(parameters={"lr": place}).id for place in range(120)]
    labelled = asked(server, action={"kind": "label", "labels": {"sweep": "old"}}, where="params.lr < 100")
    cancelled = asked(server, action={"kind": "cancel"}, where="labels.sweep = old and params.lr >= 90")
    again = asked(server, action={"kind": "cancel"}, runs=runs[90:101])

    assert (labelled, cancelled, again) == ((100, 100), (10, 10), (11, 1))
    states = [server.core.run(run).state for run in runs]
    assert [place for place, state in enumerate(states) if state == "CANCELLED"] == list(range(90, 101))


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"action": {"kind": "archive"}}, 422),
        ({"action": {"kind": "archive"}, "where": "", "runs": ["run_01JD0C5K7W0000000000000000"]}, 422),
        ({"action": {"kind": "archive"}, "runs": ["run_01JD0C5K7W0000000000000000"]}, 404),
        ({"action": {"kind": "label"}, "where": ""}, 422),
        ({"action": {"kind": "archive"}, "where": "params.nothing"}, 422),
    ],
)
def test_a_bulk_change_that_cannot_be_is_refused(server: EdgeServer, body: dict[str, Any], status: int) -> None:
    assert server.admin.post(f"{V1}/runs:change", json=body).status_code == status


def test_a_bulk_change_is_done_in_short_parts_and_continues_where_it_was(core: Core) -> None:
    for place in range(150):
        core.queue(parameters={"lr": place})
    request = api.BulkRequest(action=api.BulkAction(kind="star"), where="")
    begun = core.write(
        lambda session: run_changes.begin_bulk(session, core.project_id, request, by=TESTER, now=core.clock.now())
    )
    parts = change_runs(core)
    ended = core.read(lambda session: run_changes.get_bulk(session, core.project_id, begun.id))

    assert (begun.total, ended.done, ended.changed) == (150, 150, 150)
    assert parts >= 3


def test_a_view_is_saved_by_name_with_its_maker(server: EdgeServer) -> None:
    server.core.queue(parameters={"lr": 0.1})
    view = {"where": "params.lr > 0.05", "sort": "-params.lr", "columns": ["params.lr", "owner"], "group": "job"}
    saved = server.admin.put(f"{V1}/run-views/best of all", json=view).json()

    assert saved["view"] == {**view, "archived": False}
    assert server.admin.get(f"{V1}/run-views").json()["items"] == [saved]
    assert saved["made_by"]["name"] == "local admin"
    wrong = server.admin.put(f"{V1}/run-views/other", json={"where": "params.none = 1"})
    assert (wrong.status_code, wrong.json()["context"]["nearest"][:1]) == (422, ["params.lr"])
    assert server.admin.delete(f"{V1}/run-views/best of all").status_code == 204
    assert server.admin.get(f"{V1}/run-views").json()["items"] == []


def test_a_list_gives_the_columns_asked_for(server: EdgeServer) -> None:
    run = server.core.queue(parameters={"lr": 0.1, "opt": "adam"}, labels={"team": "blue"})
    query = [("column", name) for name in ("params.lr", "params.opt", "labels.team", "owner", "state", "duration")]
    (row,) = server.admin.get(f"{V1}/runs", params=[*query, ("sort", "-params.lr")]).json()["items"]

    wanted = {"params.lr": 0.1, "params.opt": "adam", "labels.team": "blue", "owner": "tester", "state": "QUEUED"}
    assert row["fields"] == wanted
    assert row["id"] == run.id
    assert server.admin.get(f"{V1}/runs", params={"sort": "params.rl"}).json()["context"]["nearest"][0] == "params.lr"
    assert server.admin.get(f"{V1}/runs:fields", params={"q": "PARAMS.o"}).json()["items"] == [
        {"name": "params.opt", "kind": "text"}
    ]
    groups = server.admin.get(f"{V1}/runs:groups", params={"by": "labels.team"}).json()
    assert groups == {"items": [{"value": "blue", "where": 'labels.team = "blue"', "runs": 1}], "others": 0}
