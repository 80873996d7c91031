"""Plans for chips that are not there: any host may be asked, and a run that does not fit is refused."""

from collections.abc import Sequence
from typing import Any

import pytest

from drumline.contracts import api
from drumline.contracts.plans import PlanReport, PlanRequest, ProbeState
from drumline.contracts.problems import ProblemCode
from drumline.contracts.worker_api import DeviceReport
from drumline.slices import GPUS, simulated_hosts
from drumline_server.base.errors import DrumlineError
from drumline_server.lifecycle import probes
from drumline_server.services import plans, submit
from drumline_server.services.submit import Rerun, Submission
from support.core import TERMS, TESTER, Core, Worker, submission_body

PROGRAM: dict[str, Any] = {
    "strategy": "MirroredStrategy",
    "executor": "spmd",
    "steps": 4,
    "ended": False,
    **dict.fromkeys(("variables", "collectives", "batches", "inputs", "memory", "warnings"), ()),
    "seconds": 1.0,
}


def plan(core: Core, probe: dict[str, Any], key: str = "p", **run: Any) -> api.Plan:
    body = PlanRequest.model_validate({"run": submission_body(**run), "probe": probe})
    order = plans.PlanSubmission(Submission(core.project_id, TESTER, key, body.run, "tok_1"), body, TERMS)
    draft = core.read(lambda session: plans.draft_plan(session, order, now=core.clock.now()))
    return core.write(lambda session: plans.keep_plan(session, order, draft, now=core.clock.now()))


def report(worker: Worker, plan_id: str, **fields: Any) -> None:
    body = PlanReport.model_validate({"incarnation": worker.incarnation, **fields})
    now = worker.core.clock.now()
    worker.core.write(lambda session: probes.record_plan_report(session, worker.host_id, plan_id, body, 0, now=now))


CHIPS: dict[str, Any] = {
    "slice": "v5e:4x4",
    "kind": "TPU v5 lite",
    "devices": 16,
    "hosts": 4,
    "compiler": "libtpu 0.0.52",
    "available_bytes": 1000,
    "programs": (
        {
            "first_call": 0,
            "rows_per_replica": 8,
            "fits": False,
            "gross": True,
            "argument_bytes": 2000,
            "needed_bytes": 2000,
            "memory": None,
            "largest": (),
            "exchanges": (),
            "exchange_count": 0,
            "flops": None,
            "bytes_accessed": None,
            "optimal_s": None,
            "message": "",
            "seconds": 0.1,
        },
    ),
    "fits": False,
    "stopped": None,
}


def test_a_plan_for_absent_chips_is_probed_on_any_host_and_tells_how_far_it_is(core: Core) -> None:
    worker = core.add_worker()
    made = plan(core, probe={"on": "v5e:16x16", "batch_parameter": "epochs"})
    assert (made.on, made.devices, made.starts_now, made.why) == ("v5e:16x16", (), False, None)
    (order,) = worker.beat().plans
    assert (order.on, order.batch_parameter, order.replicas) == ("v5e:16x16", "epochs", 1)

    report(worker, made.id, message="v5e:16x16: compiling", progress=True)
    seen = core.read(lambda session: plans.get_plan(session, core.project_id, made.id, now=core.clock.now()))
    assert (seen.probe.state, seen.probe.message) == (ProbeState.WAITING, "v5e:16x16: compiling")


@pytest.mark.parametrize(
    ("name", "parameters", "code", "message"),
    [
        ("epoch", {}, ProblemCode.UNKNOWN_PARAMETER, "has no parameter 'epoch'; did you mean 'epochs'?"),
        ("learning_rate", {}, ProblemCode.BAD_PARAMETER, "the batch parameter 'learning_rate' is 0.1"),
        ("epochs", {"epochs": 0}, ProblemCode.BAD_PARAMETER, "must be a whole number from 1"),
    ],
)
def test_a_parameter_whose_largest_value_cannot_be_looked_for_is_refused_at_once(
    core: Core, name: str, parameters: dict[str, Any], code: ProblemCode, message: str
) -> None:
    core.add_worker()
    with pytest.raises(DrumlineError) as refused:
        plan(core, {"on": "v5e:16x16", "batch_parameter": name}, parameters=parameters)
    assert refused.value.code is code
    (field,) = refused.value.errors
    assert (field.field, message in field.message) == ("probe.batch_parameter", True), field


def test_a_run_whose_plan_does_not_fit_is_refused_with_the_figures_unless_anyway(core: Core) -> None:
    worker = core.add_worker()
    made = plan(core, probe={"on": "v5e:4x4"})
    worker.beat()
    report(worker, made.id, program={**PROGRAM, "chips": CHIPS})

    with pytest.raises(DrumlineError) as refused:
        core.submit(plan=made.id)
    assert refused.value.code is ProblemCode.DOES_NOT_FIT
    figures = {"plan": made.id, "slice": "v5e:4x4", "needed_bytes": 2000, "available_bytes": 1000}
    assert refused.value.context == figures
    assert "libtpu 0.0.52" in refused.value.detail
    assert core.submit(key="again", plan=made.id, anyway=True)


@pytest.mark.parametrize("on", ["v9:2x2", "v5e:3x3", "v5e:2x2x2", "v4-7"])
def test_a_slice_that_is_none_is_refused_at_once(on: str) -> None:
    with pytest.raises(ValueError, match="on: "):
        PlanRequest.model_validate({"run": submission_body(), "probe": {"on": on}})


HOUR_S = 3_600
DAY_S = 86_400


def add_slice(core: Core, name: str = "v5e:4x4") -> list[Worker]:
    """Workers on the hosts of a slice, all of them there."""
    hosts = simulated_hosts(name)
    made = []
    for host in hosts:
        worker = core.add_worker(host.name, 1, platform="tpu")
        devices = [
            DeviceReport(
                platform="tpu",
                index=index,
                kind=host.kind,
                coords=place[:3],
                core_on_chip=place[3],
                simulated=True,
            )
            for index, place in enumerate(host.places)
            if place is not None
        ]
        worker.register(devices=tuple(devices))
        made.append(worker)
    return made


def add_plan(core: Core, workers: Sequence[Worker], key: str = "p", **changes: Any) -> api.Plan:
    """A finished plan: by default of digits, which does not fit v5e:4x4."""
    chips = {**CHIPS, **changes.pop("chips", {})}
    body = PlanRequest.model_validate({"run": submission_body(**changes), "probe": {"on": chips["slice"]}})
    order = plans.PlanSubmission(Submission(core.project_id, TESTER, key, body.run, "tok_1"), body, TERMS)
    draft = core.read(lambda session: plans.draft_plan(session, order, now=core.clock.now()))
    made = core.write(lambda session: plans.keep_plan(session, order, draft, now=core.clock.now()))
    (asked,) = [worker for worker in workers if worker.name == made.probe.host_name]
    report(asked, made.id, program={**PROGRAM, "chips": chips})
    core.clock.advance(HOUR_S)
    for worker in workers:
        worker.beat()
    return made


def refusal(core: Core, **changes: Any) -> DrumlineError | None:
    """What keeps sixteen replicas of digits from being queued."""
    try:
        core.submit(**{"resources": {"replicas": 16}, **changes})
    except DrumlineError as error:
        return error
    return None


def test_a_finished_plan_of_the_same_content_refuses_a_run_whoever_made_it(core: Core) -> None:
    workers = add_slice(core)
    assert refusal(core) is None
    made = add_plan(core, workers)

    refused = refusal(core)
    assert refused is not None
    assert refused.code is ProblemCode.DOES_NOT_FIT
    assert refused.context["plan"] == made.id
    assert "1 h 00 m ago by libtpu 0.0.52" in refused.detail
    assert "needs 1.95 KiB on each device, and a program may use 1000 B" in refused.detail
    assert refusal(core, anyway=True) is None
    assert refusal(core, job={"name": "of-another-name", "record": {"reductions_every": 3}}) is not None


@pytest.mark.parametrize(
    "other",
    [
        {"parameters": {"epochs": 3}},
        {"job": {"strategy": {"kind": "mirrored", "executor": "mpmd"}}, "resources": {"replicas": 4}},
        {"resources": {"replicas": 8}},
    ],
)
def test_a_plan_of_other_content_or_of_another_number_of_devices_refuses_nothing(
    core: Core, other: dict[str, Any]
) -> None:
    add_plan(core, add_slice(core))
    assert refusal(core, **other) is None


@pytest.mark.parametrize(
    ("fleet", "planned"),
    [
        ("v6e:4x4", {}),  # another chip
        ("v5e:2x8", {}),  # another shape of all that the run takes
        ("v5e:4x4", {"slice": "v6e:4x4", "kind": "TPU v6 lite"}),
    ],
)
def test_a_plan_of_another_chip_or_shape_refuses_nothing(core: Core, fleet: str, planned: dict[str, Any]) -> None:
    add_plan(core, add_slice(core, fleet), chips=planned)
    assert refusal(core) is None


def test_where_the_run_may_go_to_other_devices_too_no_plan_refuses_it(core: Core) -> None:
    workers = add_slice(core)
    add_plan(core, workers)
    core.add_worker("cpus", 16)
    assert refusal(core) is None
    assert refusal(core, resources={"replicas": 16, "platform": "tpu"}) is not None


def test_the_newest_plan_counts_for_a_week_and_one_by_an_older_compiler_says_so(core: Core) -> None:
    workers = add_slice(core)
    add_plan(core, workers)
    add_plan(core, workers, "other", chips={"compiler": "libtpu 0.0.60"}, parameters={"epochs": 1})
    refused = refusal(core)
    assert refused is not None
    assert "Newer plans here are by libtpu 0.0.60" in refused.detail
    add_plan(core, workers, "again", chips={"compiler": "libtpu 0.0.60", "fits": True})
    assert refusal(core) is None

    add_plan(core, workers, "third")
    assert refusal(core) is not None
    core.clock.advance(7 * DAY_S)
    for worker in workers:
        worker.beat()
    assert refusal(core) is None


def test_a_topology_that_the_strategy_names_is_the_chip_before_any_host_has_it(core: Core) -> None:
    worker = core.add_worker()
    strategy = {"kind": "tpu", "topology": "v5e:4x4"}
    add_plan(core, [worker], job={"strategy": strategy})
    asked = {"job": {"strategy": strategy}, "wait_for_devices": True}
    assert refusal(core, **asked) is not None
    assert refusal(core, **{**asked, "job": {"strategy": {**strategy, "topology": "v5e:2x8"}}}) is None


def test_the_refusal_names_each_run_of_a_sweep_and_a_rerun_is_tried(core: Core) -> None:
    workers = add_slice(core)
    run = core.submit(resources={"replicas": 16})
    add_plan(core, workers)
    assert refusal(core) is not None
    again = Rerun(core.project_id, TESTER, "again", run.id, api.RerunRequest(), "tok_1")
    assert core.write(
        lambda session: submit.rerun(session, again, most_waiting=100, now=core.clock.now())
    ).submitted.run.id


MISSING = "This host has none: `drumline worker compilers add tpu`."


def probe_of(core: Core, plan_id: str) -> api.Probe:
    return core.read(lambda session: plans.get_plan(session, core.project_id, plan_id, now=core.clock.now())).probe


def test_a_plan_goes_to_the_host_that_has_the_compiler_and_the_next_one_there_at_once(core: Core) -> None:
    alpha, beta = core.add_worker("alpha"), core.add_worker("beta")
    made = plan(core, probe={"on": "v5e:4x4"})
    assert made.probe.host_name == "alpha"
    assert [order.plan for order in alpha.beat().plans] == [made.id]
    alpha.beat(plans=(made.id,))

    report(alpha, made.id, fault="no_compiler", message=MISSING)
    shown = probe_of(core, made.id)
    assert (shown.state, shown.host_name, shown.fault, shown.message) == (ProbeState.WAITING, "beta", None, "")
    assert alpha.beat(plans=(made.id,)).unwanted_plans == (made.id,)
    (order,) = beta.beat().plans
    assert (order.plan, order.on) == (made.id, "v5e:4x4")
    report(beta, made.id, program={**PROGRAM, "chips": CHIPS})
    assert probe_of(core, made.id).state is ProbeState.READY

    core.clock.advance(1)
    assert plan(core, probe={"on": "v5e:2x2"}, key="second").probe.host_name == "beta"


def test_where_no_host_has_the_compiler_the_plan_names_them_and_the_command(core: Core) -> None:
    workers = [core.add_worker(name) for name in ("alpha", "beta")]
    made = plan(core, probe={"on": "v5e:4x4"})
    for worker in workers:
        worker.beat()
        report(worker, made.id, fault="no_compiler", message=MISSING)
    shown = probe_of(core, made.id)
    assert (shown.state, shown.fault) == (ProbeState.FAILED, "no_compiler")
    assert shown.message == f"{MISSING} None of alpha, beta has it; one of them is enough."


def test_where_the_other_hosts_are_at_other_plans_it_says_busy(core: Core) -> None:
    alpha, _ = core.add_worker("alpha"), core.add_worker("beta")
    made = plan(core, probe={"on": "v5e:4x4"})
    assert plan(core, probe={"on": "v6e:4x4"}, key="other").probe.host_name == "beta"
    report(alpha, made.id, fault="no_compiler", message=MISSING)
    shown = probe_of(core, made.id)
    assert shown.state is ProbeState.BUSY
    assert "alpha lacks the compiler" in shown.message


@pytest.mark.parametrize(("on", "warned"), [("v5e:4x4", True), ("v5e:2x2", False)])
def test_a_plan_for_several_hosts_warns_of_a_strategy_that_stays_on_one(core: Core, on: str, warned: bool) -> None:
    workers = [core.add_worker()]
    chips = {"slice": on}
    made = add_plan(core, workers, chips=chips, job={"strategy": {"kind": "central_storage"}})
    assert [warning.code for warning in made.warnings] == ["engine"] * warned
    assert not warned or "the strategy central_storage stays on one of them" in made.warnings[0].message


def test_a_plan_that_speaks_of_no_chips_hides_none_that_does(core: Core) -> None:
    workers = add_slice(core)
    misfit = add_plan(core, workers)
    body = PlanRequest.model_validate({"run": submission_body(resources={"replicas": 16}), "probe": None})
    order = plans.PlanSubmission(Submission(core.project_id, TESTER, "q", body.run, "tok_1"), body, TERMS)
    draft = core.read(lambda session: plans.draft_plan(session, order, now=core.clock.now()))
    ordinary = core.write(lambda session: plans.keep_plan(session, order, draft, now=core.clock.now()))
    refused = refusal(core, plan=ordinary.id)
    assert refused is not None
    assert refused.context["plan"] == misfit.id


def test_a_plan_for_gpus_refuses_a_run_on_as_many_of_that_kind(core: Core) -> None:
    worker = core.add_worker("dgx", 8, platform="gpu")
    kind = GPUS["h100"].kind
    worker.register(devices=tuple(DeviceReport(platform="gpu", index=index, kind=kind) for index in range(8)))
    gpus = {"slice": "h100:8", "kind": kind, "devices": 8, "hosts": 1, "compiler": "jax-cuda13-pjrt 0.10.2"}
    add_plan(core, [worker], chips=gpus)
    refused = refusal(core, resources={"replicas": 8})
    assert refused is not None
    assert "does not fit h100:8" in refused.detail
    assert refusal(core, resources={"replicas": 4}) is None


def test_an_old_worker_that_plans_for_no_chips_is_no_newer_compiler(core: Core) -> None:
    workers = add_slice(core)
    misfit = add_plan(core, workers)
    made = plan(core, probe={"on": "v5e:4x4"}, key="old")
    (asked,) = [worker for worker in workers if worker.name == made.probe.host_name]
    report(asked, made.id, program={**PROGRAM, "calls": 4})
    refused = refusal(core, plan=misfit.id)
    assert refused is not None
    assert refused.code is ProblemCode.DOES_NOT_FIT
    assert "Newer plans" not in refused.detail
