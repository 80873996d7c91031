"""Batches of up to 10 000 runs: queued a part at a time, so that nobody waits, and finished after an interruption."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.spec import MAX_PARAMETERS
from drumline.contracts.states import RunState
from drumline.contracts.sweeps import BatchSubmit, GridSweep, SweepSubmit
from drumline_server.base.errors import CapError, DrumlineError
from drumline_server.lifecycle.run_changes import batches_to_cancel, cancel_part
from drumline_server.services import batches, run_changes, submit_batch
from drumline_server.services.bundles import store_bundle
from drumline_server.services.submit import room_to_wait
from support.core import TESTER, Core, submission_body
from support.edge import EdgeServer, edge_server
from support.processes import wait_until
from support.submissions import MOST_WAITING
from support.turns import hold_limit_s

pytestmark = pytest.mark.both_databases

V1 = "/api/v1"
MOST = 10_000


@pytest.fixture
def server(sqlite_url: str, tmp_path: Path) -> Iterator[EdgeServer]:
    with edge_server(sqlite_url, tmp_path / "data") as running:
        running.core.add_worker()
        yield running


def sweep_of(runs: int, **changes: Any) -> SweepSubmit:
    sweep = GridSweep(
        parameters={"epochs": list(range(1, runs // 10 + 1)), "learning_rate": [n / 10 for n in range(10)]}
    )
    return SweepSubmit(name="many", run=submission_body(**changes), sweep=sweep)


def of_many_defaults(core: Core) -> dict[str, Any]:
    """A job whose program has as many parameters with defaults as one may."""
    names = ("epochs", "learning_rate", *(f"p{place}" for place in range(MAX_PARAMETERS - 2)))
    parameters = tuple(api.ProgramParameter(name=name, type="float", required=False, default=0.5) for name in names)
    entrypoint = api.ProgramEntrypoint(entrypoint="wide:main", summary="", parameters=parameters)
    packed = api.Bundle(sha256="sha256:" + "cd" * 32, size_bytes=100, files=1, entrypoints=(entrypoint,))
    core.write(lambda session: store_bundle(session, core.project_id, packed, by=TESTER, now=core.clock.now()))
    return {"name": "wide", "program": {"bundle": packed.sha256, "entrypoint": "wide:main"}}


def prepared(core: Core, body: SweepSubmit | BatchSubmit, key: str = "key") -> submit_batch.Prepared:
    asked = submit_batch.BatchSubmission(core.project_id, TESTER, key, body, "tok_1", submit_batch.make_runs(body))
    return core.read(lambda session: submit_batch.prepare(session, asked, now=core.clock.now()))


def begun(
    core: Core, body: SweepSubmit | BatchSubmit, *, most: int = MOST_WAITING
) -> submit_batch.BatchResult | submit_batch.Begun:
    wanted = prepared(core, body)
    return core.write(lambda session: submit_batch.begin(session, wanted, most_waiting=most, now=core.clock.now()))


def one_more(
    core: Core, part: submit_batch.Begun, *, most: int = MOST_WAITING
) -> submit_batch.BatchResult | submit_batch.Begun:
    return core.write(lambda session: submit_batch.queue_part(session, part, most_waiting=most, now=core.clock.now()))


def finished(
    core: Core, step: submit_batch.BatchResult | submit_batch.Begun, *, most: int = MOST_WAITING
) -> submit_batch.BatchResult:
    while isinstance(step, submit_batch.Begun):
        step = one_more(core, step, most=most)
    return step


def parameters_of(core: Core, batch: str) -> list[tuple[Any, Any]]:
    rows = core.read(lambda session: batches.outcome_rows(session, batch))
    return [(row.parameters["epochs"], row.parameters["learning_rate"]) for row in rows]


def test_a_sweep_of_ten_thousand_runs_is_one_request(server: EdgeServer) -> None:
    sweep = {
        "kind": "grid",
        "parameters": {"epochs": list(range(1, 1001)), "learning_rate": [n / 10 for n in range(10)]},
    }
    run = submission_body().model_dump(mode="json") | {"parameters": {}}
    headers = {"Idempotency-Key": "many"}

    made = server.admin.post(f"{V1}/runs:sweep", json={"name": "many", "run": run, "sweep": sweep}, headers=headers)
    again = server.admin.post(f"{V1}/runs:sweep", json={"name": "many", "run": run, "sweep": sweep}, headers=headers)

    assert made.status_code == 201, made.text[:500]
    batch = made.json()["batch"]
    assert (batch["size"], batch["states"], batch["complete"], batch["hint"]) == (MOST, {"QUEUED": MOST}, True, "")
    assert len(set(made.json()["runs"])) == MOST
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.json() == made.json()
    listed = server.admin.get(f"{V1}/batches/{batch['id']}/outcomes", params={"sort": "-index", "limit": 1000}).json()
    assert (listed["total"], listed["items"][0]["index"]) == (MOST, MOST - 1)
    assert listed["items"][0]["parameters"] == {"learning_rate": 0.9, "epochs": 1000}


@pytest.mark.usefixtures("_no_collections")
@pytest.mark.parametrize("kind", ["sweep", "wide", "jobs", "defaults", "unlike"])
def test_no_transaction_of_a_large_batch_takes_the_writer_for_long(core: Core, kind: str) -> None:
    core.add_worker()
    wide, wide_job = {"learning_rate": 0.1}, of_many_defaults(core)
    bodies: dict[str, Callable[[], SweepSubmit | BatchSubmit]] = {
        "sweep": lambda: sweep_of(600),
        "wide": lambda: BatchSubmit(
            runs=[submission_body(parameters=wide, labels={f"l{n}": "x" * 60 for n in range(16)})] * 600
        ),
        "jobs": lambda: BatchSubmit(runs=[submission_body(job={"name": f"digits-{n}"}) for n in range(30)]),
        "defaults": lambda: sweep_of(600, job=wide_job),
        "unlike": lambda: BatchSubmit(  # each leaves out others: nothing is alike
            runs=[submission_body(job=wide_job, parameters={f"p{place}": 1.0}) for place in range(60)]
        ),
    }
    wanted = prepared(core, bodies[kind]())
    steps: list[submit_batch.BatchResult | submit_batch.Begun] = []

    def timed(session: Session) -> float:
        began = time.thread_time()
        terms = {"most_waiting": MOST_WAITING, "now": core.clock.now()}
        last = steps[-1] if steps else None
        if isinstance(last, submit_batch.Begun):
            steps.append(submit_batch.queue_part(session, last, **terms))
        else:
            steps.append(submit_batch.begin(session, wanted, **terms))
        return time.thread_time() - began

    first = core.write(timed)  # in which statements are compiled, once for all batches
    held = []
    while isinstance(steps[-1], submit_batch.Begun):
        held.append(core.write(timed))

    assert len(held) > 3
    assert max(held) < hold_limit_s(), [round(each, 3) for each in (first, *held)]
    assert isinstance(steps[-1], submit_batch.BatchResult)
    assert steps[-1].submitted.batch.complete


def test_what_was_interrupted_is_finished_by_the_same_request(core: Core) -> None:
    core.add_worker()
    first = begun(core, sweep_of(500))
    assert isinstance(first, submit_batch.Begun)
    batch = first.batch_id
    half = core.read(lambda session: batches.get_batch(session, core.project_id, batch))
    assert not half.complete
    assert half.hint.startswith(f"{sum(half.states.values())} of 500 runs are queued.")
    assert "same Idempotency-Key" in half.hint

    core.clock.advance(60)
    answer = finished(core, begun(core, sweep_of(500)))

    assert (answer.submitted.batch.id, answer.submitted.batch.complete) == (batch, True)
    assert len(set(answer.submitted.runs)) == 500
    assert parameters_of(core, batch) == [(epochs, rate / 10) for epochs in range(1, 51) for rate in range(10)]
    replayed = begun(core, sweep_of(500))
    assert isinstance(replayed, submit_batch.BatchResult)
    assert (replayed.replayed, replayed.submitted) == (True, answer.submitted)


def test_two_of_the_same_request_queue_each_run_once(core: Core) -> None:
    core.add_worker()
    steps = [begun(core, sweep_of(500)) for _ in range(2)]
    while any(isinstance(step, submit_batch.Begun) for step in steps):
        steps = [one_more(core, step) if isinstance(step, submit_batch.Begun) else step for step in steps]

    one, two = (step for step in steps if isinstance(step, submit_batch.BatchResult))
    assert one.submitted.runs == two.submitted.runs
    assert len(set(one.submitted.runs)) == 500


def test_the_same_key_for_another_body_is_refused_while_the_batch_is_incomplete(core: Core) -> None:
    core.add_worker()
    assert isinstance(begun(core, sweep_of(500)), submit_batch.Begun)

    with pytest.raises(DrumlineError, match="was used before with another body"):
        begun(core, sweep_of(600))


def test_a_batch_that_is_cancelled_while_it_is_queued_gets_no_more_runs(server: EdgeServer) -> None:
    core = server.core
    step = begun(core, sweep_of(500))
    assert isinstance(step, submit_batch.Begun)
    queued = server.admin.get(f"{V1}/batches/{step.batch_id}").json()["states"]["QUEUED"]

    asked = server.admin.post(f"{V1}/batches/{step.batch_id}:cancel").json()
    core.cancel_batches()
    cancelled = server.admin.get(f"{V1}/batches/{step.batch_id}").json()
    answer = finished(core, step)

    assert asked["size"] == queued
    assert asked["cancel"]["left"] > 0
    assert (cancelled["size"], cancelled["states"], cancelled["complete"]) == (queued, {"CANCELLED": queued}, True)
    assert cancelled["cancel"]["left"] == 0
    assert answer.submitted.batch.states == {"CANCELLED": queued}
    assert len(answer.submitted.runs) == queued < 500


def test_more_runs_than_may_wait_are_refused_by_the_settings_name(sqlite_url: str, tmp_path: Path) -> None:
    with edge_server(sqlite_url, tmp_path / "data", waiting_runs=5) as server:
        server.core.add_worker()
        run = submission_body().model_dump(mode="json")

        def post(path: str, body: Any, key: str) -> Any:
            return server.admin.post(f"{V1}/{path}", json=body, headers={"Idempotency-Key": key})

        whole = post("runs:batch", {"runs": [run] * 6}, "six")
        assert (whole.status_code, whole.json()["code"], whole.json()["context"]["cap"]) == (
            429, "rate_limited", "DRUMLINE_WAITING_RUNS",
        )  # fmt: skip
        assert server.admin.get(f"{V1}/batches").json()["items"] == []
        assert post("runs:batch", {"runs": [run] * 4}, "four").status_code == 201
        last = post("runs", run, "one")
        assert last.status_code == 201
        refused = post("runs", run, "two")
        assert (refused.status_code, refused.json()["context"]["limit"]) == (429, 5)
        assert "Wait until some have started" in refused.json()["hint"]
        again = post(f"runs/{last.json()['run']['id']}:rerun", {}, "again")
        assert again.status_code == 429, again.text
        server.core.schedule()
        assert post("runs", run, "two").status_code == 201


def test_a_batch_that_has_no_more_room_to_wait_goes_on_later(core: Core) -> None:
    core.add_worker()
    step = begun(core, sweep_of(500), most=500)
    core.submit()

    with pytest.raises(CapError, match="DRUMLINE_WAITING_RUNS"):
        finished(core, step, most=500)

    answer = finished(core, begun(core, sweep_of(500)))
    assert answer.submitted.batch.complete


def test_how_many_wait_is_counted_cheaply(core: Core) -> None:
    core.add_worker()
    finished(core, begun(core, sweep_of(2_000)))
    began = time.thread_time()

    room = core.read(lambda session: room_to_wait(session, core.project_id, MOST_WAITING))

    assert room == MOST_WAITING - 2_000
    assert time.thread_time() - began < hold_limit_s()
    assert core.read(lambda session: room_to_wait(session, core.project_id, 3)) == 0


def ask_for_cancel(core: Core, batch_id: str, grace_s: float | None = None) -> None:
    asked = run_changes.BatchCancellation(core.project_id, batch_id, TESTER, grace_s)
    core.write(lambda session: run_changes.cancel_batch(session, asked, now=core.clock.now()))


def batch_of(core: Core, batch_id: str) -> api.Batch:
    return core.read(lambda session: batches.get_batch(session, core.project_id, batch_id))


@pytest.mark.long_on_postgresql("two thousand runs; a hundred are cancelled on both databases, part by part")
@pytest.mark.usefixtures("_no_collections")
def test_a_large_batch_is_cancelled_in_parts_that_take_the_writer_for_a_short_time_each(core: Core) -> None:
    core.add_worker()
    step = finished(core, begun(core, sweep_of(2_000)))
    batch_id = step.submitted.batch.id

    ask_for_cancel(core, batch_id)
    marked = batch_of(core, batch_id)
    first, *held = core.cancel_batches()  # in the first one statements are compiled, once for all

    assert marked.cancel is not None
    assert (marked.cancel.left, marked.states) == (2_000, {RunState.QUEUED: 2_000})
    done = batch_of(core, batch_id)
    assert done.cancel is not None
    assert (done.cancel.left, done.states) == (0, {RunState.CANCELLED: 2_000})
    assert max(held) < hold_limit_s(), [round(each, 3) for each in (first, *held)]
    assert core.read(batches_to_cancel) == []


def test_a_cancellation_that_a_restart_interrupts_goes_on_from_the_mark(core: Core) -> None:
    core.add_worker()
    batch_id = finished(core, begun(core, sweep_of(100))).submitted.batch.id
    ask_for_cancel(core, batch_id)

    assert core.write(lambda session: cancel_part(session, batch_id, now=core.clock.now()))
    half = batch_of(core, batch_id)
    core.cancel_batches()

    assert half.cancel is not None
    assert 0 < half.cancel.left < 100
    assert batch_of(core, batch_id).states == {RunState.CANCELLED: 100}


def test_the_loops_of_a_server_cancel_what_a_request_marked(sqlite_url: str, tmp_path: Path) -> None:
    with edge_server(sqlite_url, tmp_path / "data", loops=True) as server:
        server.core.add_worker()
        batch_id = finished(server.core, begun(server.core, sweep_of(300))).submitted.batch.id

        answer = server.admin.post(f"{V1}/batches/{batch_id}:cancel")

        assert answer.status_code == 202
        assert answer.json()["cancel"]["left"] > 0
        path = f"{V1}/batches/{batch_id}"
        wait_until(lambda: server.admin.get(path).json()["cancel"]["left"] == 0, timeout_s=60, what="it is cancelled")
        assert set(server.admin.get(path).json()["states"]) <= {"CANCELLED", "CANCELLING"}


def test_asking_again_with_another_grace_holds_for_those_that_were_not_asked_yet(core: Core) -> None:
    worker = core.add_worker()
    body = sweep_of(10, resources={"replicas": 8})
    batch_id = finished(core, begun(core, body)).submitted.batch.id
    core.schedule()
    running = worker.take().start()

    ask_for_cancel(core, batch_id)
    ask_for_cancel(core, batch_id, grace_s=7)
    core.cancel_batches()
    ask_for_cancel(core, batch_id)

    why = core.run(running.claimed.run).why
    assert why is not None
    assert why.evidence["grace_s"] == 7
    assert core.read(batches_to_cancel) == []
