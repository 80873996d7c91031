"""Telemetry is stored once, in order, and never beyond a hole."""

import struct
from typing import Any

import pytest
from sqlalchemy import select

from drumline.contracts.events import MAX_EVENTS_PER_BATCH, EventBatch, ProgressEvent
from drumline.contracts.states import RunState
from drumline_server.base.errors import DrumlineError, InvalidRequestError
from drumline_server.storage.models import (
    Base,
    Checkpoint,
    LogChunk,
    Metric,
    PlacementRecord,
    Reduction,
    VariableRecord,
)
from drumline_server.telemetry import ingest
from support.core import Core, Member

pytestmark = pytest.mark.both_databases

ARRAY = {"shape": (), "dtype": "float32", "values": (1.0,)}


@pytest.fixture
def member(core: Core) -> Member:
    """A member that runs."""
    worker = core.add_worker()
    core.submit(resources={"replicas": 8})
    core.schedule()
    return worker.take().start()


def rows(core: Core, table: type[Base], *order: Any) -> list[Any]:  # Any: rows of the table
    return core.read(lambda session: list(session.scalars(select(table).order_by(*order))))


def kinds(core: Core, member: Member) -> list[str]:
    return [event.kind for event in core.events(member.claimed.run)]


def log(member: Member, text: str, offset: int, stream: str = "stdout") -> Any:  # Any: a LogEvent
    return member.event("log", stream=stream, text=text, offset=offset)


def test_batch_sent_again_is_stored_once_and_acknowledged_again(core: Core, member: Member) -> None:
    batch = [log(member, "one\n", 0), member.event("progress", step=1)]

    first = member.send(*batch)
    again = member.send(*batch)

    assert first == again
    assert first.acked_seq == member.seq
    assert first.window == MAX_EVENTS_PER_BATCH
    assert len(rows(core, LogChunk, LogChunk.first_byte)) == 1
    assert kinds(core, member).count("progress") == 1


def test_overlapping_batch_stores_only_what_is_new(core: Core, member: Member) -> None:
    first, second, third = log(member, "a\n", 0), log(member, "b\n", 2), log(member, "c\n", 4)
    member.send(first, second)
    ack = member.send(second, third)

    content = b"".join(chunk.content for chunk in rows(core, LogChunk, LogChunk.first_byte))
    assert content == b"a\nb\nc\n"
    assert ack.acked_seq == third.seq


def test_batch_behind_a_hole_stores_nothing_and_says_where_to_go_on(core: Core, member: Member) -> None:
    lost, late = log(member, "a\n", 0), log(member, "b\n", 2)

    ack = member.send(late)

    assert ack.acked_seq == lost.seq - 1
    assert rows(core, LogChunk, LogChunk.first_byte) == []
    member.send(lost, late)
    assert len(rows(core, LogChunk, LogChunk.first_byte)) == 1


def test_batch_with_a_gap_inside_is_refused(member: Member) -> None:
    first, _, third = log(member, "a", 0), log(member, "b", 1), log(member, "c", 2)

    with pytest.raises(InvalidRequestError, match=r"events\.1\.seq"):
        member.send(first, third)


def test_logs_are_chunks_with_byte_and_line_numbers(core: Core, member: Member) -> None:
    member.send(log(member, "one\ntwo\n", 0), log(member, "thr", 8), log(member, "!\n", 11, "stderr"))
    member.send(log(member, "ä\n", 13))

    chunks = rows(core, LogChunk, LogChunk.first_byte)
    assert [(c.first_byte, c.next_byte, c.first_line, c.stream, c.content) for c in chunks] == [
        (0, 11, 1, "stdout", b"one\ntwo\nthr"),
        (11, 13, 3, "stderr", b"!\n"),
        (13, 16, 4, "stdout", "ä\n".encode()),
    ]
    logged = [event.body for event in core.events(member.claimed.run) if event.kind == "log"]
    assert [(body["first_byte"], body["next_byte"]) for body in logged] == [(0, 13), (13, 16)]


def test_metrics_are_packed_columns_exact_to_the_bit(core: Core, member: Member) -> None:
    values = (0.1, -0.0, 1e308, 5e-324, float("inf"))
    at = core.clock.now()
    member.send(
        member.event("metrics", names=("loss",) * 5, steps=(1, 2, 3, 4, 5), times=(at,) * 5, values=values),
        member.event("metrics", names=("loss", "lr"), steps=(6, 6), times=(at, at), values=(float("nan"), 0.5)),
    )

    loss, learning_rate = rows(core, Metric, Metric.name)
    assert (loss.n, loss.first_step, loss.last_step) == (6, 1, 6)
    assert struct.unpack("<6q", loss.steps) == (1, 2, 3, 4, 5, 6)
    assert loss.points[:40] == struct.pack("<5d", *values)
    assert struct.unpack("<1d", learning_rate.points) == (0.5,)
    (body,) = [event.body for event in core.events(member.claimed.run) if event.kind == "metrics"]
    assert body == {"names": ["loss", "lr"], "count": 2, "first_step": 1, "last_step": 6}


def test_metric_columns_of_different_lengths_are_refused(member: Member) -> None:
    with pytest.raises(InvalidRequestError, match="different lengths"):
        member.send(member.event("metrics", names=("loss",), steps=(1, 2), times=(0,), values=(0.5,)))


def test_reductions_keep_what_each_replica_put_in(core: Core, member: Member) -> None:
    nan = {**ARRAY, "values": (float("nan"),), "nan_count": 1}
    member.send(
        member.event(
            "reduction",
            name="loss",
            step=7,
            op="mean",
            axis=(0, 1),
            inputs=(ARRAY, nan),
            counts=(4, 2),
            denominator=6,
            result=ARRAY,
        )
    )

    (row,) = rows(core, Reduction, Reduction.id)
    assert (row.name, row.step, row.op, row.axis, row.replicas, row.ragged) == (
        "loss",
        7,
        "mean",
        {"axis": [0, 1]},
        2,
        True,
    )
    assert row.body["counts"] == [4, 2]
    assert row.body["inputs"][1]["values"] == ["NaN"]
    (body,) = [event.body for event in core.events(member.claimed.run) if event.kind == "reduction"]
    assert body["items"] == [{"id": row.id, "name": "loss", "step": 7, "op": "mean", "axis": [0, 1], "origin": "host"}]


def test_placement_variables_and_checkpoints_are_kept(core: Core, member: Member) -> None:
    device = member.claimed.devices[0].device
    member.send(
        member.event(
            "placement",
            strategy="MirroredStrategy",
            executor="spmd",
            replicas=({"replica": 0, "devices": (device,)},),
        ),
        member.event(
            "variable",
            name="w",
            shape=(2, 3),
            dtype="float32",
            synchronization="auto",
            aggregation="none",
            homes=(device,),
            size_bytes=24,
        ),
        member.event("checkpoint", step=10, path="f1/step_10", size_bytes=5, manifest="sha256:1"),
    )

    (placement,) = rows(core, PlacementRecord, PlacementRecord.member_id)
    (variable,) = rows(core, VariableRecord, VariableRecord.name)
    (checkpoint,) = rows(core, Checkpoint, Checkpoint.step)
    assert (placement.executor, placement.replicas) == ("spmd", [{"replica": 0, "devices": [device]}])
    assert (variable.shape, variable.homes) == ([2, 3], [device])
    assert (checkpoint.step, checkpoint.fence, checkpoint.path) == (10, 1, "f1/step_10")
    assert {"placement", "variable", "checkpoint"} <= set(kinds(core, member))


def test_a_placement_names_the_executors_in_order_of_first_use_and_each_is_told_once(
    core: Core, member: Member
) -> None:
    placed = ({"replica": 0, "devices": (member.claimed.devices[0].device,)},)
    before = kinds(core, member).count("placement")
    for executor in ("auto", "spmd", "mpmd", "spmd", "mpmd"):
        member.send(member.event("placement", strategy="MirroredStrategy", executor=executor, replicas=placed))

    (record,) = rows(core, PlacementRecord, PlacementRecord.member_id)
    told = [event.body["executor"] for event in core.events(member.claimed.run) if event.kind == "placement"][before:]
    assert record.executor == "spmd, mpmd"
    assert told == ["auto", "spmd", "spmd, mpmd"]


def test_a_strategy_that_the_program_made_itself_takes_the_place_of_the_one_that_the_run_gave(
    core: Core, member: Member
) -> None:
    device = member.claimed.devices[0].device
    given = ({"replica": 0, "devices": (device,)}, {"replica": 1, "devices": (device,)})
    own = given[:1]
    member.send(member.event("placement", strategy="MirroredStrategy", executor="auto", replicas=given))
    for executor in ("auto", "spmd"):
        member.send(member.event("placement", strategy="TPUStrategy", executor=executor, replicas=own))

    (record,) = rows(core, PlacementRecord, PlacementRecord.member_id)
    assert (record.strategy, record.executor) == ("TPUStrategy", "spmd")
    assert record.replicas == [{"replica": 0, "devices": [device]}]


def test_progress_shows_on_the_run(core: Core, member: Member) -> None:
    member.send(
        member.event("progress", step=3, total_steps=10, steps_per_s=2.5, examples_per_s=float("inf")),
        member.event("progress", step=4, total_steps=10, steps_per_s=2.5, throughput={"hfu_percent": 41.5}),
    )

    progress = core.run(member.claimed.run).progress
    assert (progress.step, progress.total_steps, progress.steps_per_s, progress.examples_per_s) == (4, 10, 2.5, None)
    assert progress.throughput is not None
    assert (progress.throughput.hfu_percent, progress.throughput.mfu_percent) == (41.5, None)
    assert kinds(core, member).count("progress") == 1


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (None, None),
        ({"accuracy": 0.5}, {"accuracy": 0.5}),
        ({"loss": float("nan"), "text": "a\x00b"}, {"loss": "NaN", "text": "a\ufffdb"}),
    ],
)
def test_result_is_kept_as_json_can_hold_it(core: Core, member: Member, value: object, kept: object) -> None:
    member.send(member.event("result", value=value))

    assert core.run(member.claimed.run).result == kept


def test_result_over_the_cap_leaves_a_gap(core: Core, member: Member) -> None:
    member.send(member.event("result", value="x" * 300_000))

    assert core.run(member.claimed.run).result is None
    assert kinds(core, member).count("gap") == 1


def test_one_batch_makes_one_event_per_kind(core: Core, member: Member) -> None:
    before = len(core.events(member.claimed.run))
    member.send(*(log(member, "x\n", 2 * number) for number in range(100)), member.event("progress", step=1))

    assert len(core.events(member.claimed.run)) == before + 2


def test_telemetry_of_an_ended_attempt_is_not_wanted(core: Core, member: Member) -> None:
    late = member.event("progress", step=9)
    member.seq -= 1
    member.end()
    assert core.run(member.claimed.run).state is RunState.SUCCEEDED

    with pytest.raises(DrumlineError, match="fence"):
        member.send(late)


def test_member_that_nobody_claimed_reports_nothing(core: Core) -> None:
    worker = core.add_worker()
    run = core.submit(resources={"replicas": 8})
    core.schedule()
    (notice,) = worker.beat().assigned
    event = ProgressEvent.model_validate({"seq": 1, "at": core.clock.now(), "step": 7})
    batch = EventBatch(fence=notice.fence, incarnation=worker.incarnation, first_seq=1, events=(event,))

    with pytest.raises(DrumlineError, match="never claimed"):
        core.write(
            lambda session: ingest.store_batch(
                session, worker.host_id, notice.member, batch, key=None, now=core.clock.now()
            )
        )
    assert core.run(run.id).progress.step is None
