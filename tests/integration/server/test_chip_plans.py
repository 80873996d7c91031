"""Plans for chips that are not there: any host may be asked, and a run that does not fit is refused."""

from typing import Any

import pytest

from drumline.contracts import api
from drumline.contracts.plans import PlanReport, PlanRequest, ProbeState
from drumline.contracts.problems import ProblemCode
from drumline_server.base.errors import DrumlineError
from drumline_server.lifecycle import probes
from drumline_server.services import plans
from drumline_server.services.submit import Submission
from support.core import TERMS, Core, Worker, submission_body

PROGRAM: dict[str, Any] = {
    "strategy": "MirroredStrategy",
    "executor": "spmd",
    "steps": 4,
    "ended": False,
    **dict.fromkeys(("variables", "collectives", "batches", "inputs", "memory", "warnings"), ()),
    "seconds": 1.0,
}


def plan(core: Core, probe: dict[str, Any]) -> api.Plan:
    body = PlanRequest.model_validate({"run": submission_body(), "probe": probe})
    order = plans.PlanSubmission(Submission(core.project_id, "tester", "p", body.run, "tok_1"), body, TERMS)
    draft = core.read(lambda session: plans.draft_plan(session, order, now=core.clock.now()))
    return core.write(lambda session: plans.keep_plan(session, order, draft, now=core.clock.now()))


def report(worker: Worker, plan_id: str, **fields: Any) -> None:
    body = PlanReport.model_validate({"incarnation": worker.incarnation, **fields})
    now = worker.core.clock.now()
    worker.core.write(lambda session: probes.record_plan_report(session, worker.host_id, plan_id, body, now=now))


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
    made = plan(core, probe={"on": "v5e:16x16", "batch_parameter": "batch"})
    assert (made.on, made.devices, made.starts_now, made.why) == ("v5e:16x16", (), False, None)
    (order,) = worker.beat().plans
    assert (order.on, order.batch_parameter, order.replicas) == ("v5e:16x16", "batch", 1)

    report(worker, made.id, message="v5e:16x16: compiling", progress=True)
    seen = core.read(lambda session: plans.get_plan(session, core.project_id, made.id, now=core.clock.now()))
    assert (seen.probe.state, seen.probe.message) == (ProbeState.WAITING, "v5e:16x16: compiling")


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
