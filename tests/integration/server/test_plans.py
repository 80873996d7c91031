"""Plans: what the scheduler would do, who probes, and what a run is compared with. Nothing of it is a run."""

from typing import Any

import pytest
from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import new_id
from drumline.contracts.plans import PlanReport, PlanRequest, ProbedProgram, ProbeState
from drumline.contracts.problems import ProblemCode
from drumline_server.base.errors import DrumlineError, NotFoundError
from drumline_server.lifecycle import probes
from drumline_server.services import plan_comparison, plans
from drumline_server.services.submit import Submission
from drumline_server.storage import runs
from drumline_server.storage.models import Hold, Job, JobVersion, Plan, Reduction, Run, RunEvent
from drumline_server.storage.models import Member as MemberRow
from drumline_server.storage.notifications import notified_hosts
from support.backlog import queue_many
from support.core import SUSPECT_S, TERMS, TESTER, Core, Member, Worker, submission_body
from support.statements import statements

PROGRAM: dict[str, Any] = {
    "strategy": "MirroredStrategy",
    "executor": "spmd",
    "steps": 4,
    "ended": False,
    "variables": (
        {
            "name": "w",
            "shape": (4,),
            "dtype": "float32",
            "synchronization": "on_write",
            "aggregation": "mean",
            "size_bytes": 16,
            "homes": (0, 1),
        },
    ),
    "collectives": (
        {
            "name": "loss",
            "kind": "reduce",
            "op": "mean",
            "origin": "host",
            "axis": 0,
            "shape": (8,),
            "dtype": "float32",
            "size_bytes": 32,
            "times": 1,
            "first_step": 0,
            "executor": "spmd",
            "observed": True,
        },
    ),
    "batches": ({"rows": (8, 8), "first_step": 0, "steps": 4, "executor": "spmd"},),
    "inputs": (),
    "memory": (),
    "warnings": (),
    "seconds": 1.0,
}


def plan(core: Core, key: str = "p", probe: dict[str, Any] | None = None, **changes: Any) -> api.Plan:
    body = PlanRequest.model_validate({"run": submission_body(**changes), "probe": probe})
    order = plans.PlanSubmission(Submission(core.project_id, TESTER, key, body.run, "tok_1"), body, TERMS)
    draft = core.read(lambda session: plans.draft_plan(session, order, now=core.clock.now()))
    return core.write(lambda session: plans.keep_plan(session, order, draft, now=core.clock.now()))


def read(core: Core, plan_id: str) -> api.Plan:
    return core.read(lambda session: plans.get_plan(session, core.project_id, plan_id, now=core.clock.now()))


def test_plan_of_a_run_that_goes_on_from_a_checkpoint_is_what_the_run_then_does(core: Core) -> None:
    home = core.add_worker("home", devices=1)
    core.submit(resources={"replicas": 1})
    core.schedule()
    source = home.take().start()
    source.send(source.event("checkpoint", step=10, path="f1/step_10", size_bytes=10, manifest="sha256:10"))
    source.end()
    core.add_worker("away", devices=8)
    wanted: dict[str, Any] = {"resources": {"replicas": 1}, "resume_from": source.claimed.run}
    free = plan(core, "free", **wanted)
    assert (free.starts_now, {device.host_name for device in free.devices}) == (True, {"home"})

    first = core.submit(**wanted)
    assert core.schedule() == [first.id]
    busy = plan(core, "busy", **wanted)
    second = core.submit(**wanted)
    assert core.schedule() == []

    assert busy.why is not None
    why = core.run(second.id).why
    assert why is not None
    assert (busy.starts_now, busy.why.rule, why.rule) == (False, "checkpoint_host", "checkpoint_host")
    assert {device.host_name for device in busy.devices} == {"home"}


def report(worker: Worker, plan_id: str, **fields: Any) -> ProbeState:
    body = PlanReport.model_validate({"incarnation": worker.incarnation, **fields})
    now = worker.core.clock.now()
    return worker.core.write(
        lambda session: probes.record_plan_report(session, worker.host_id, plan_id, body, 0, now=now)
    ).state


def rows(core: Core) -> list[int | None]:
    """How many rows each table of runs has."""
    tables = (Run, RunEvent, Job, JobVersion, Hold)
    return core.read(lambda session: [session.scalar(select(func.count()).select_from(table)) for table in tables])


def test_a_plan_says_what_the_scheduler_then_does_and_leaves_no_trace(core: Core) -> None:
    core.add_worker("alpha", 8)
    core.add_worker("beta", 4)
    before = rows(core)

    planned = plan(core, resources={"replicas": 4})

    assert rows(core) == before
    assert core.device_states() == ["FREE"] * 12
    assert (planned.starts_now, planned.why, planned.probe.state) == (True, None, ProbeState.NONE)
    run = core.submit(resources={"replicas": 4}, plan=planned.id)
    core.schedule()
    shown = core.read(lambda session: plan_comparison.compare(session, core.project_id, run.id, now=core.clock.now()))
    assert [(row.name, row.verdict, row.planned) for row in shown.rows] == [
        (f"replica {replica}", "same", f"beta cpu:{replica}") for replica in range(4)
    ]
    assert (shown.differences, core.run(run.id).plan) == (0, planned.id)


def test_a_plan_behind_a_long_queue_reads_it_beside_the_writers_only(core: Core) -> None:
    core.add_worker("alpha", 8)
    queue_many(core, 400)
    body = PlanRequest.model_validate({"run": submission_body(wait_for_devices=True, priority=-5)})
    order = plans.PlanSubmission(Submission(core.project_id, TESTER, "p", body.run, "tok_1"), body, TERMS)

    with statements() as reading:
        draft = core.read(lambda session: plans.draft_plan(session, order, now=core.clock.now()))
    with statements() as writing:
        planned = core.write(lambda session: plans.keep_plan(session, order, draft, now=core.clock.now()))

    assert planned.why is not None
    assert planned.why.position == 401
    assert [statement for statement, _ in reading if "FROM run" in statement]
    assert [statement for statement, _ in writing if "FROM run" in statement] == []


def test_a_plan_that_would_wait_says_why_and_where_it_would_sit(core: Core) -> None:
    core.add_worker("alpha", 4)
    core.submit(resources={"replicas": 3})
    core.schedule()

    planned = plan(core, resources={"replicas": 2})

    assert not planned.starts_now
    assert planned.why is not None
    assert planned.why.rule == "devices_busy"
    assert [(device.index, device.replica) for device in planned.devices] == [(0, 0), (1, 1)]


def test_a_plan_for_a_fleet_that_is_too_small_waits_only_if_asked_to(core: Core) -> None:
    core.add_worker("alpha", 2)
    with pytest.raises(DrumlineError) as refused:
        plan(core, resources={"replicas": 4})
    assert refused.value.code is ProblemCode.TOO_MANY_REPLICAS

    planned = plan(core, resources={"replicas": 4}, wait_for_devices=True)
    assert planned.why is not None
    assert (planned.devices, planned.why.rule) == ((), "too_few_devices")


@pytest.mark.parametrize(
    ("batch", "replicas", "codes"),
    [
        ("per_replica", 4, ["per_replica_batch"]),
        ("global", 4, []),
        ("per_replica", 1, []),
    ],
)
def test_a_batch_per_replica_is_told_with_what_it_makes_of_the_global_one(
    core: Core, batch: str, replicas: int, codes: list[str]
) -> None:
    core.add_worker("alpha", 4)

    planned = plan(core, job={"strategy": {"kind": "mirrored", "batch": batch}}, resources={"replicas": replicas})

    assert [warning.code for warning in planned.warnings] == codes
    for warning in planned.warnings:
        assert warning.message.startswith("Each of the 4 replicas takes a whole batch")
        assert "the global batch is 4 times the dataset's batch" in warning.message


def test_a_program_is_checked_as_on_submission(core: Core) -> None:
    core.add_worker()
    with pytest.raises(DrumlineError) as refused:
        plan(core, parameters={"speed": 1})
    assert refused.value.code is ProblemCode.UNKNOWN_PARAMETER


def test_the_same_key_gives_the_same_plan(core: Core) -> None:
    core.add_worker()
    assert plan(core, "k").id == plan(core, "k").id
    assert plan(core, "k2").id != plan(core, "k").id


def test_the_worker_of_the_placement_probes_and_its_report_is_the_plan(core: Core) -> None:
    core.add_worker("alpha", 8)
    beta = core.add_worker("beta", 2)
    planned = plan(core, probe={"steps": 4, "limit_s": 20}, resources={"replicas": 2})
    assert (planned.probe.state, planned.probe.host_name) == (ProbeState.WAITING, "beta")

    (order,) = beta.beat().plans
    assert (order.plan, order.replicas, order.steps, order.limit_s) == (planned.id, 2, 4, 20)
    assert beta.beat(plans=(planned.id,)).plans == ()
    assert read(core, planned.id).probe.state is ProbeState.RUNNING
    assert report(beta, planned.id, program=PROGRAM) is ProbeState.READY

    done = read(core, planned.id)
    assert done.program == ProbedProgram.model_validate(PROGRAM)
    assert beta.beat().plans == ()
    assert report(beta, planned.id, fault="program_error", message="late") is ProbeState.READY
    assert read(core, planned.id) == done


def test_a_host_has_one_probe_and_the_next_plan_says_busy_at_once(core: Core) -> None:
    worker = core.add_worker()
    first = plan(core, "1", probe={})
    second = plan(core, "2", probe={})
    assert (second.probe.state, second.starts_now) == (ProbeState.BUSY, True)
    assert "ask again" in second.probe.message

    report(worker, first.id, fault="no_step", message="no step")
    assert read(core, first.id).probe.fault == "no_step"
    assert plan(core, "3", probe={}).probe.state is ProbeState.WAITING


def test_a_probe_that_nobody_answers_for_is_over_at_its_deadline(core: Core) -> None:
    core.add_worker()
    planned = plan(core, "1", probe={"limit_s": 5})
    core.clock.advance(36)
    shown = read(core, planned.id).probe
    assert (shown.state, shown.fault) == (ProbeState.FAILED, "timed_out")


def test_without_a_live_worker_the_rest_of_the_plan_stands(core: Core) -> None:
    core.add_worker()
    core.clock.advance(SUSPECT_S + 1)
    planned = plan(core, probe={})
    assert (planned.probe.state, planned.probe.fault) == (ProbeState.FAILED, "unavailable")
    assert len(planned.devices) == 1


def test_more_devices_than_can_be_simulated_are_placed_but_not_probed(core: Core) -> None:
    core.add_worker(devices=200)
    planned = plan(core, probe={}, resources={"replicas": 200})
    assert (planned.probe.state, len(planned.devices)) == (ProbeState.NONE, 200)
    assert "at most 128" in planned.probe.message


def test_a_cancelled_probe_is_unwanted(core: Core) -> None:
    worker = core.add_worker()
    planned = plan(core, probe={})
    worker.beat(plans=(planned.id,))
    core.write(lambda session: plans.cancel_plan(session, core.project_id, planned.id, now=core.clock.now()))
    assert worker.beat(plans=(planned.id,)).unwanted_plans == (planned.id,)
    assert read(core, planned.id).probe.fault == "cancelled"


def test_plans_are_of_one_project_and_one_host(core: Core) -> None:
    core.add_worker("alpha", 1)
    other = core.add_worker("beta", 2)
    planned = plan(core, probe={})
    with pytest.raises(NotFoundError):
        report(other, planned.id, busy=True)
    foreign = core.add_project("foreign")
    with pytest.raises(NotFoundError):
        core.submit(project_id=foreign, plan=planned.id, wait_for_devices=True)
    unplanned = core.submit()
    with pytest.raises(NotFoundError):
        core.read(lambda session: plan_comparison.compare(session, core.project_id, unplanned.id, now=0))


def test_what_a_run_does_otherwise_than_planned_is_named(core: Core) -> None:
    worker = core.add_worker()
    planned = plan(core, probe={}, resources={"replicas": 2})
    report(worker, planned.id, program=PROGRAM)
    run = core.submit(resources={"replicas": 2}, plan=planned.id)
    core.schedule()
    member = worker.take().start()
    homes = [device.device for device in member.claimed.devices]
    summary = {"shape": (4,), "dtype": "float32"}
    member.send(
        member.event(
            "variable",
            name="w",
            shape=(4,),
            dtype="float32",
            synchronization="on_write",
            aggregation="mean",
            homes=homes[:1],
            size_bytes=16,
        ),
        member.event(
            "reduction",
            name="loss",
            step=0,
            op="mean",
            axis=0,
            inputs=(summary, summary),
            counts=(4, 4),
            denominator=8,
            result={"shape": (), "dtype": "float32"},
        ),
    )
    shown = core.read(lambda session: plan_comparison.compare(session, core.project_id, run.id, now=core.clock.now()))
    told = [(row.about, row.name, row.verdict) for row in shown.rows if row.about != "replica"]
    assert told == [
        ("variable", "w", "different"),
        ("batch", "rows in step 0", "different"),
        ("collective", "loss", "missing"),
        ("collective", "loss", "not_planned"),
    ]
    assert shown.differences == 4
    assert [row.actual for row in shown.rows][-1] == "mean, 16 B from each replica"
    (variable,) = [row for row in shown.rows if row.about == "variable"]
    assert [text.rsplit("mean, ")[-1] for text in (variable.planned, variable.actual)] == [
        "on devices 0, 1",
        "on device 0",
    ]


def test_what_a_run_did_not_record_is_not_missing(core: Core) -> None:
    worker = core.add_worker()
    collective = {**PROGRAM["collectives"][0], "shape": (4,), "size_bytes": 16}
    last = {**collective, "name": "last", "first_step": 3}
    large = {**collective, "name": "large", "shape": (40,), "size_bytes": 160}
    small = {**collective, "name": "small", "shape": (), "size_bytes": 4}
    planned = plan(core, probe={}, resources={"replicas": 2})
    report(worker, planned.id, program={**PROGRAM, "batches": (), "collectives": (collective, last, large, small)})
    run = core.submit(resources={"replicas": 2}, plan=planned.id)
    core.schedule()
    member = worker.take().start()
    each = plan_comparison.MOST_COMPARED // 3
    core.write(lambda session: add_reductions(session, member, {0: each, 1: each, 2: each, 3: each}))

    shown = core.read(lambda session: plan_comparison.compare(session, core.project_id, run.id, now=core.clock.now()))

    told = [(row.name, row.verdict) for row in shown.rows if row.about == "collective"]
    assert told == [("loss", "same"), ("last", "not_recorded"), ("large", "not_recorded"), ("small", "missing")]


def add_reductions(session: Session, member: Member, counts: dict[int, int]) -> None:
    """So many of each step, all called `loss` but those of step 3."""
    summary = {"shape": [4], "dtype": "float32"}
    steps = [step for step, count in counts.items() for _ in range(count)]
    row = session.get_one(MemberRow, member.id)
    session.execute(
        insert(Reduction),
        [
            {
                "id": new_id("red"), "project_id": row.project_id, "run_id": row.run_id, "member_id": row.id,
                "attempt_id": row.attempt_id, "seq": 1_000 + number, "kind": 0, "level": 0,
                "name": "last" if step == 3 else "loss",
                "step": step, "op": "mean", "axis": {"axis": 0}, "origin": "host", "replicas": 2, "ragged": False,
                "body": {"inputs": [summary, summary], "counts": [4, 4]}, "recorded_at": 0,
            }
            for number, step in enumerate(steps)
        ],
    )  # fmt: skip


def test_old_plans_are_forgotten_unless_a_run_came_from_them(core: Core) -> None:
    core.add_worker()
    used, unused = plan(core, "1"), plan(core, "2")
    core.submit(plan=used.id)
    core.clock.advance(8 * 86_400)
    core.write(lambda session: runs.forget_old_plans(session, now=core.clock.now()))
    assert core.read(lambda session: list(session.scalars(select(Plan.id)))) == [used.id]
    assert unused.id != used.id


def test_host_is_notified_of_a_probe_at_once(core: Core) -> None:
    worker = core.add_worker()
    heard: list[str] = []
    unsubscribe = core.database.commit_news.subscribe(lambda topics: heard.extend(notified_hosts(topics)))
    plan(core, probe={})
    unsubscribe()

    assert heard == [worker.host_id]
