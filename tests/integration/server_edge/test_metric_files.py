"""Every point of a run's metrics is read out as CSV, Parquet and Arrow, exactly and by rows."""

import csv
import io
import math
import struct
from typing import Any

import pyarrow.parquet
import pytest
from pyarrow import BufferReader, Table, ipc

from support.attempts import again
from support.core import Member
from support.edge import EdgeServer

pytestmark = pytest.mark.both_databases
ODD = [math.nan, math.inf, -math.inf, 5e-324, 1e308, -0.0, 0.1]


@pytest.fixture
def member(any_server: EdgeServer) -> Member:
    """A running member that has logged two metrics."""
    worker = any_server.core.add_worker()
    any_server.core.submit(resources={"replicas": 8}, retries={"infrastructure": 9})
    any_server.core.schedule()
    member = worker.take().start()
    for name, values in (("loss", ODD * 20), ("=cmd|' /C calc'!A0", [1.5])):
        n = len(values)
        times = [1_700_000_000_000_001 + step for step in range(n)]
        member.send(member.event("metrics", names=[name] * n, steps=list(range(n)), times=times, values=values))
    return member


def read(server: EdgeServer, path: str, **query: Any) -> bytes:
    answer = server.admin.get(f"/api/v1{path}", params=query)
    assert answer.status_code == 200, answer.text
    assert "attachment" in answer.headers["content-disposition"]
    return answer.content


def bits(values: Any) -> bytes:
    return struct.pack(f"<{len(values)}d", *values)


def test_tables_hold_every_point_bit_for_bit(any_server: EdgeServer, member: Member) -> None:
    path = f"/runs/{member.claimed.run}/metrics"
    arrow: Table = ipc.open_stream(BufferReader(read(any_server, f"{path}.arrow", names="loss"))).read_all()
    parquet = pyarrow.parquet.read_table(BufferReader(read(any_server, f"{path}.parquet", names="loss")))

    for table in (arrow, parquet):
        assert table.column_names == ["run", "attempt", "rank", "name", "step", "time", "value"]
        assert bits(table["value"].to_pylist()) == bits(ODD * 20)
        assert table["step"].to_pylist() == list(range(140))
        assert {*table["run"].to_pylist()} == {member.claimed.run}
        assert str(table.schema.field("time").type) == "timestamp[us, tz=UTC]"
        assert table["time"][0].value == 1_700_000_000_000_001


def test_csv_is_exact_and_no_name_is_a_formula(any_server: EdgeServer, member: Member) -> None:
    text = read(any_server, f"/runs/{member.claimed.run}/metrics.csv").decode()

    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["name"] for row in rows] == ["'=cmd|' /C calc'!A0"] + ["loss"] * 140
    assert bits([float(row["value"]) for row in rows]) == bits([1.5, *ODD * 20])
    assert rows[0]["time"] == "2023-11-14T22:13:20.000001Z"


def test_several_runs_are_one_file(any_server: EdgeServer, member: Member) -> None:
    waiting = any_server.core.submit(wait_for_devices=True, resources={"replicas": 8})

    asked = {"runs": [waiting.id, member.claimed.run], "names": "loss"}
    content = read(any_server, "/runs:metrics.csv", **asked).decode()

    assert content.count("\r\n") == 141


def test_what_was_rolled_back_is_left_out_unless_the_attempt_is_named(any_server: EdgeServer, member: Member) -> None:
    core = any_server.core
    second = again(core, member.worker, member.claimed.run, member)
    second.send(second.event("metrics", names=["loss"], steps=[70], times=[0], values=[9.0]))

    def steps(**query: str) -> list[int]:
        text = read(any_server, f"/runs/{member.claimed.run}/metrics.csv", names="loss", **query).decode()
        return [int(row["step"]) for row in csv.DictReader(io.StringIO(text))]

    assert steps() == list(range(71))
    assert steps(attempt=member.claimed.attempt) == list(range(140))


@pytest.mark.parametrize(("path", "status"), [("metrics.xlsx", 422), ("metrics.csv?name=loss", 422)])
def test_a_file_that_there_is_none_of_is_refused(server: EdgeServer, path: str, status: int) -> None:
    run = server.core.submit(wait_for_devices=True)

    assert server.admin.get(f"/api/v1/runs/{run.id}/{path}").status_code == status
