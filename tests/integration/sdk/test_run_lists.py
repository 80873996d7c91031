"""Runs filtered, listed with columns, and marked, from the command line and the SDK, against a real server."""

import io
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drumline import Client
from drumline.errors import InvalidRequestError, OptionError
from support.command_line import Cli
from support.edge import EdgeServer, edge_server
from support.run_lists import change_runs


@pytest.fixture
def edge(sqlite_url: str, tmp_path: Path) -> Iterator[EdgeServer]:
    with edge_server(sqlite_url, tmp_path / "server") as running:
        yield running


@pytest.fixture
def server(edge: EdgeServer) -> EdgeServer:
    """What the command line of these tests talks to."""
    return edge


@contextmanager
def changing(edge: EdgeServer) -> Iterator[None]:
    """The loop that does bulk changes runs meanwhile."""
    over = threading.Event()

    def loop() -> None:
        while not over.wait(0.05):
            change_runs(edge.core)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_ps_filters_sorts_and_shows_columns(edge: EdgeServer, cli: Cli) -> None:
    runs = [edge.core.queue(parameters={"lr": lr, "opt": "adam"}, labels={"team": "a b"}).id for lr in (0.1, 0.3, 0.2)]
    assert cli("ps", "--where", "params.lr > 0.1", "--sort", "-params.lr", "--columns", "params.lr, owner") == 0
    first, *rows = cli.out.splitlines()

    assert first.split() == ["RUN", "PARAMS.LR", "OWNER"]
    assert [row.split() for row in rows] == [[runs[1], "0.3", "tester"], [runs[2], "0.2", "tester"]]
    edge.core.clock.advance(7_500)
    columns = "total_duration,duration,params.seed"
    seeded = edge.core.queue(parameters={"lr": 9.5, "seed": 2**60 + 1}).id
    edge.core.clock.advance(7_500)
    assert cli("ps", f"r-{seeded[-5:].lower()}", "--columns", columns) == 0
    assert re.split("  +", cli.out.splitlines()[1]) == [seeded, "2 h 05 m", "-", str(2**60 + 1)]
    assert cli("ps", "digits", "--state", "queued", "--label", "team=a b", "--sort", "params.lr") == 0
    assert [row.split()[0] for row in cli.out.splitlines()[1:]] == [runs[0], runs[2], runs[1]]
    assert cli("ps", "--where", "params.rl > 1") == 2
    assert "character 1" in cli.err
    assert "params.lr" in cli.err


def test_mark_changes_runs_by_name_or_all_that_match(edge: EdgeServer, cli: Cli) -> None:
    runs = [edge.core.queue(parameters={"lr": lr}).id for lr in (0.1, 0.2, 0.3)]
    assert cli("mark", runs[0], "--label", "best=yes", "--note", "keep", "--star") == 0
    kept = edge.core.run(runs[0])
    assert (kept.labels, kept.note, kept.starred) == ({"best": "yes"}, "keep", True)
    with changing(edge):
        assert cli("mark", "--where", "not labels.best", "--archive") == 0
    assert cli.out.strip() == "archive: 2 of 2 runs changed"
    assert cli("mark", "--archive") == cli("mark", runs[0]) == 2


def test_delete_asks_and_deletes_runs_by_name_or_all_that_match_but_those_that_live(
    edge: EdgeServer, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    edge.core.add_worker()
    runs = [edge.core.queue(parameters={"lr": lr}).id for lr in (0.1, 0.2, 0.3)]
    for run in runs[:2]:
        edge.core.cancel(run)
    assert cli("delete", runs[0]) == 130
    assert f"Delete {runs[0]} (digits), for good?" in cli.err
    assert cli("delete", runs[0], "--yes", "--why", "a typo") == 0
    assert cli("watch", runs[0]) != 0
    assert "was deleted by local admin" in cli.err
    assert cli("delete", runs[2], "--yes") != 0
    assert f"drumline cancel {runs[2]}" in cli.err
    with changing(edge):
        assert cli("delete", "--where", "params.lr > 0", "--yes") == 0
    assert cli.out.strip() == "1 of 2 runs deleted"
    assert "is QUEUED" in cli.err
    with Client(edge.url, edge.admin_token) as client:
        edge.core.cancel(runs[2])
        told = client.get(runs[2]).delete("done with")
        assert (told.job, told.why, told.deleted_by.name) == ("digits", "done with", "local admin")
        assert [*client.runs(archived=True)] == []


def test_retention_is_shown_and_changed_and_what_is_not_named_stays(
    edge: EdgeServer, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("retention") == 0
    assert cli.out.strip() == "Ended runs are kept however old they are; starred ones always."
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert cli("retention", "--days", "30") == 130
    assert cli("retention", "--days", "30", "--yes") == cli("retention", "--telemetry", "50GB", "--yes") == 0
    assert cli.out.startswith("Ended runs are kept for 30 days after their end, up to ")
    assert cli("retention", "--days", "1", "--yes") == 0
    assert cli.out.startswith("Ended runs are kept for 1 day after their end, up to ")
    assert cli("retention", "--days", "30", "--yes") == 0
    with Client(edge.url, edge.admin_token) as client:
        assert (client.retention().days, client.retention().telemetry_bytes) == (30, 50 * 10**9)
        assert cli("retention", "--days", "off", "--telemetry", "off") == 0
        assert (client.retention().days, client.retention().telemetry_bytes) == (None, None)
    for wrong in (("--days", "0"), ("--days", "x"), ("--telemetry", "50 parsecs"), ("--telemetry", "9e99")):
        assert cli("retention", *wrong) == 2


def test_the_sdk_counts_groups_and_changes_what_matches(edge: EdgeServer) -> None:
    for lr in (0.1, 0.2, 0.3):
        edge.core.queue(parameters={"lr": lr, "opt": "adam" if lr < 0.3 else "sgd"})
    with Client(edge.url, edge.admin_token) as client:
        few = client.runs("params.lr < 0.3", sort="-params.lr", columns=["params.lr"])
        assert [run.fields["params.lr"] for run in few] == [0.2, 0.1]
        assert few.count() == 2
        assert {group.value: group.runs for group in client.runs().groups("params.opt").items} == {"adam": 2, "sgd": 1}
        with changing(edge):
            assert few.cancel().changed == 2
        assert client.runs("state = cancelled").count() == 2
        run = client.get(next(iter(few)).id).mark(labels={"a": "1"}).mark(labels={"a": None, "b": "2"})
        assert run.details.labels == {"b": "2"}
        with pytest.raises(InvalidRequestError, match="no run has 'lr'"):
            client.runs("lr > 1").count()


def test_a_column_that_every_frame_has_is_the_same_where_it_is_asked_for(edge: EdgeServer) -> None:
    run = edge.core.queue(parameters={"lr": 0.5}).id
    edge.core.queue(parameters={"lr": 1})
    with Client(edge.url, edge.admin_token) as client:
        client.get(run).mark(note="kept", starred=True)
        usual = client.runs().to_arrow()
        asked = client.runs(columns=["note", "starred", "params.lr", "state", "replicas"]).to_arrow()

    for name in usual.column_names:
        assert asked.column(name).to_pylist() == usual.column(name).to_pylist(), name
    assert usual.column("starred").to_pylist() == [False, True]
    assert usual.column("note").to_pylist() == ["", "kept"]
    assert asked.column("params.lr").to_pylist() == [1, 0.5]


def test_a_list_is_a_frame_with_a_column_for_each_that_was_asked_for(edge: EdgeServer) -> None:
    runs = [
        edge.core.queue(parameters=parameters, labels={"team": "a"}).id
        for parameters in (
            {"lr": 0.5, "n": 2**53 + 1, "x": "NaN"},
            {"lr": 1, "n": 3, "x": 2.5},
            {"lr": 2, "opt": "adam"},
        )
    ]
    with Client(edge.url, edge.admin_token) as client:
        columns = ["params.lr", "params.n", "params.x", "params.opt"]
        table = client.runs(sort="created", columns=columns).to_arrow()
        frame = client.runs(sort="created", columns=columns).to_pandas()
        nothing = client.runs("params.lr > 9", columns=["params.lr"]).to_pandas()

    assert table.column_names[-4:] == columns
    kinds = {name: str(table.schema.field(name).type) for name in (*columns, "created_at", "starred")}
    assert [*kinds.values()] == ["double", "int64", "double", "string", "timestamp[us, tz=UTC]", "bool"]
    assert [*frame["run"]] == runs
    assert table["params.n"].to_pylist() == [2**53 + 1, 3, None]
    assert table["params.opt"].to_pylist() == [None, None, "adam"]
    assert json.loads(frame["labels"][0]) == {"team": "a"}
    assert len(nothing) == 0


def test_curves_of_several_runs_are_one_frame_with_the_same_buckets(edge: EdgeServer) -> None:
    members = []
    for host, steps in (("first", range(0, 1_000)), ("second", range(500, 2_000))):
        worker = edge.core.add_worker(host)
        edge.core.submit(resources={"replicas": 8})
        edge.core.schedule()
        member = worker.take().start()
        values = ["NaN" if step == 700 else float(step) for step in steps]
        columns = {"names": ["loss"] * len(steps), "steps": [*steps], "times": [0] * len(steps), "values": values}
        member.send(member.event("metrics", **columns))
        members.append(member)
    ids = [member.claimed.run for member in members]

    with Client(edge.url, edge.admin_token) as client:
        compared = client.compare(client.runs(sort="created"), "loss", buckets=20)
        table, frame = compared.to_arrow(), compared.to_pandas()
        nothing = client.compare(ids, "accuracy").to_pandas()
        near = client.compare(ids, "loss", start=690, end=710).to_pandas()
        with pytest.raises(OptionError, match="name the metrics to compare"):
            client.compare(ids)
        with pytest.raises(OptionError, match="pass a list of runs"):
            client.compare(ids[0], "loss")
        with pytest.raises(OptionError, match="at least one run"):
            client.compare([], "loss")

    assert table.column_names == ["run", "name", "bucket", "x", "min", "max", "mean", "last", "count", "not_finite"]
    kinds = [str(table.schema.field(name).type) for name in ("run", "bucket", "x", "mean", "count")]
    assert kinds == ["string", "int64", "double", "double", "int64"]
    wide = frame.pivot(index="bucket", columns="run", values="count")
    assert ([*wide.columns], [*wide.index]) == (sorted(ids), [*range(20)])
    assert (wide[ids[0]].sum(), wide[ids[1]].isna().sum()) == (1_000, 5)
    assert frame["not_finite"].sum() == 2
    odd = near[near["x"] == 700.0]
    assert len(odd) == 2
    assert odd[["mean", "last"]].isna().all(axis=None)
    assert len(nothing) == 0
