"""What the release before stored is there after the migrations: every row, every value, and it can be used."""

import json
import math
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, NullPool, create_engine, select, text

from drumline import Client, Run
from drumline.contracts.states import RunState
from drumline_server.storage.database import Database
from drumline_server.storage.models import Metric, MetricChunk
from drumline_server.storage.models import Run as RunRow
from release.archive import MOST_BYTES, RECORDED, Table, checksums, columns_of, rows_of
from release.recorder import Exchange
from release.replay import Replay, changed_values, lost_fields, route_of
from release.unpacked import Release
from release.world import READS
from support.hosts import ExtraHost

pytestmark = pytest.mark.both_databases

MOVED: dict[str, str] = {}
"""Tables and columns (`table`, `table.column`) that a migration took away: where their content is now."""
CHANGED: dict[str, str] = {}
"""Tables and columns whose content a migration changed: why, and which test holds what came of it."""
OF_THE_HOUR = {
    "state": "a host that does not run is lost after a while",
    "why": "it says since when",
    "free_devices": "a host that does not run offers none",
    "suspect_since": "a host that does not run is suspect, then lost",
    "last_heartbeat_at": "hosts went on after they were read of",
    "last_used_at": "it was used just now",
    "expires_at": "the recorded tokens were given more time",
    "last4": "the recorded tokens were given other secrets",
    "utilization": "it is of the last hours",
}
"""Fields of the answers on hosts, devices, tokens and the overview that depend on when they are asked for."""
_TIMELY = ("GET /hosts", "GET /devices", "GET /tokens", "GET /overview")
NOT_THERE: dict[str, str] = {"GET /version .protocol": "the server's own: it rises with what workers and servers say"}
"""Fields that are gone from an answer (`GET /runs/{} .name`), or say something else: why a client of the release before
can do without.
"""


def test_archive_is_small_and_holds_what_the_recorder_counted(release: Release) -> None:
    with _connection(release) as connection:
        found = checksums(rows_of(connection))

    assert RECORDED.stat().st_size <= MOST_BYTES
    assert found == {name: Table(**table) for name, table in release.manifest["tables"].items()}
    assert all(found[name].rows for name in ("run", "attempt", "log_chunk", "metric_chunk", "metric_page", "audit"))


def test_every_row_survives_every_migration(release: Release) -> None:
    before = _rows(release)
    columns = _columns(release)
    release.migrate()

    assert [*_missing(before, columns, release)] == []


@pytest.mark.long_on_postgresql("what is compared is the same on both databases, and on both it is what was recorded")
def test_a_migration_that_loses_something_is_noticed(release: Release) -> None:
    before, columns = _rows(release), _columns(release)
    release.migrate()
    with _connection(release) as connection:
        for damage in (
            "DELETE FROM metric_page",
            "UPDATE log_chunk SET first_line = first_line + 1",
            "ALTER TABLE gap DROP COLUMN detail",
        ):
            connection.execute(text(damage))
        connection.commit()

    found = sorted(place for place, _ in _missing(before, columns, release))
    assert found == ["gap.detail", "log_chunk", "metric_page"]


def test_everything_is_read_as_before(release: Release) -> None:
    release.migrate()
    reads = [exchange for exchange in release.traffic(READS) if exchange.sender == "client"]
    with release.serve(at=release.recorded_at) as api, closing(Replay(api.url, {_admin(reads): api.token})) as replay:
        found = [
            (route_of(exchange), place, how) for exchange in reads for place, how in _differences(exchange, replay)
        ]

    assert len(reads) > 300
    assert sorted(set(found))[:40] == []


def test_every_point_is_there_bit_for_bit(release: Release) -> None:
    release.migrate()
    database = Database(release.url, pool_size=1)
    points = database.read_now(lambda session: {name: [*_points(session, "measure", name)] for name in _ODD})
    loss = database.read_now(lambda session: [*_points(session, "measure", "loss")])
    database.close()

    odd = [math.nan, math.inf, -math.inf, 5e-324, 2.2250738585072014e-308 / 3, 1e308, -1e308, -0.0, 0.1]
    assert [_bits(value) for value in points["odd"]] == [_bits(value) for value in odd]
    assert [_bits(value) for value in points["a/b c"]] == [_bits(-value) for value in odd]
    assert loss == [1.0 / (step + 1) for step in range(5000)]


def test_old_run_is_resumed_from_its_checkpoint_and_an_old_job_runs_again(release: Release) -> None:
    release.migrate()
    with release.serve(DRUMLINE_CHECKPOINT_DAYS="36500", DRUMLINE_TIME_SCALE="0.2") as api:
        host = ExtraHost(
            release.directory / "hosts" / "alpha", api.url, 2,
            ("--checkpoint-dir", str(release.directory / "checkpoints")),
        )  # fmt: skip
        (host.data_dir / "worker.json").chmod(0o600)
        (host.data_dir / "enrolment-token").write_text("it is enrolled already")
        host.start()
        try:
            with Client(api.url, api.token) as client:
                resumed = next(run for run in _succeeded(client, "measure") if run.details.resume_from)
                again = [resumed.rerun(), client.job("measure").run(version=1, parameters={"points": 5})]
                for run in again:
                    run.wait(timeout=90)
                results: list[tuple[RunState, Any, Any]] = [
                    (run.state, run.details.result, run.details.why) for run in again
                ]  # Any: JSON
        finally:
            host.stop()

    assert [state for state, _, _ in results] == [RunState.SUCCEEDED] * 2, (results, host.said[-2_000:])
    assert results[0][1] == resumed.details.result
    assert results[0][1]["began_at"] > 0
    assert results[1][1]["began_at"] == 0


_ODD = ("odd", "a/b c")


def _succeeded(client: Client, job: str) -> Iterator[Run]:
    return (client.get(each.id) for each in client.list(job=job, states=[RunState.SUCCEEDED]))


def _differences(exchange: Exchange, replay: Replay) -> Iterator[tuple[str, str]]:
    answer = replay.ask(exchange)
    if answer.status_code != exchange.status:
        yield "", f"answers {answer.status_code}, not {exchange.status}: {answer.text[:200]}"
        return
    if exchange.json() is None:
        if answer.content != exchange.answer_body:
            yield "", "has other bytes"
        return
    route = route_of(exchange)
    for place, how in lost_fields(exchange.json(), answer.json()):
        if f"{route} {place}" not in NOT_THERE and not _is_of_the_hour(route, place):
            yield place, how
    for place, how in changed_values(exchange.json(), answer.json()):
        if f"{route} {place}" not in NOT_THERE and not _is_of_the_hour(route, place):
            yield place, how


def _is_of_the_hour(route: str, place: str) -> bool:
    if place == ".request_id":
        return True
    return route.startswith(_TIMELY) and any(name in OF_THE_HOUR for name in place.replace("[]", "").split("."))


def _admin(exchanges: list[Exchange]) -> str:
    return exchanges[0].asked["authorization"].removeprefix("Bearer ")


def _missing(
    before: dict[str, list[str]], columns: dict[str, list[str]], release: Release
) -> Iterator[tuple[str, str]]:
    """Tables and columns that are gone or have another content, but for those that are said to."""
    now = _columns(release)
    kept = {}
    for table, names in columns.items():
        if table not in now:
            yield from [] if table in MOVED else [(table, "is gone")]
            continue
        gone = [name for name in names if name not in now[table]]
        yield from ((f"{table}.{name}", "is gone") for name in gone if f"{table}.{name}" not in MOVED)
        kept[table] = [name for name in names if name not in gone and f"{table}.{name}" not in CHANGED]
    positions = {table: [columns[table].index(name) for name in names] for table, names in kept.items()}
    with _connection(release) as connection:
        after = rows_of(connection, kept)
    for table, places in positions.items():
        if table not in CHANGED and _cut(before[table], places) != sorted(after[table]):
            yield table, f"{len(before[table])} rows before, {len(after[table])} after, or another content"


def _cut(lines: list[str], places: list[int]) -> list[str]:
    return sorted(json.dumps([json.loads(line)[place] for place in places]) for line in lines)


def _points(session: Any, job: str, name: str) -> Iterator[float]:  # Any: a session
    """All of that metric of the first run of that job, in the order of logging."""
    run = session.scalar(select(RunRow.id).where(RunRow.job_name == job).order_by(RunRow.created_at).limit(1))
    for metric in session.scalars(select(Metric).where(Metric.run_id == run, Metric.name == name)):
        chunks = session.scalars(
            select(MetricChunk.points)
            .where(MetricChunk.member_id == metric.member_id, MetricChunk.name == name)
            .order_by(MetricChunk.number)
        )
        content = b"".join((*chunks, metric.points))
        yield from (value for (value,) in struct.iter_unpack("<d", content))


def _bits(value: float) -> bytes:
    return struct.pack("<d", value) if not math.isnan(value) else b"nan"


@contextmanager
def _connection(release: Release) -> Iterator[Connection]:
    engine = create_engine(release.url, poolclass=NullPool)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def _rows(release: Release) -> dict[str, list[str]]:
    with _connection(release) as connection:
        return rows_of(connection)


def _columns(release: Release) -> dict[str, list[str]]:
    with _connection(release) as connection:
        return columns_of(connection)
