"""`/plan`: what a run would do, and a run beside its plan."""

from typing import Annotated

from fastapi import Header, status

from drumline.contracts import api
from drumline.contracts.ids import PlanId, RunId
from drumline.contracts.plans import PlanRequest
from drumline_server.http.dependencies import AppDep, ReaderDep, SubmitterDep, api_router
from drumline_server.scheduling.snapshot import SchedulingTerms
from drumline_server.services import plan_comparison, plans
from drumline_server.services.submit import Submission

router = api_router(tags=["plan"])

Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="Names this request: the same key and body give the same plan, however often it is sent.",
    ),
]


@router.post("/plan", status_code=status.HTTP_201_CREATED)
async def make_plan(*, body: PlanRequest, key: Key, principal: SubmitterDep, app: AppDep) -> api.Plan:
    """Says what a run would do, and runs nothing: its placement at once, the rest when a worker has probed it."""
    now = app.clock.now()
    submission = Submission(principal.project_id, principal.ref, key, body.run, principal.key)
    order = plans.PlanSubmission(submission, body, SchedulingTerms.of(app.settings))
    return await plans.plan_run(app.database, order, now=now)


@router.get("/plan/{plan_id}")
async def get_plan(plan_id: PlanId, principal: ReaderDep, app: AppDep) -> api.Plan:
    """A plan as far as it is known. Ask again while its probe is `waiting` or `running`."""
    return await app.database.read(
        lambda session: plans.get_plan(session, principal.project_id, plan_id, now=app.clock.now())
    )


@router.post("/plan/{plan_id}:cancel", status_code=status.HTTP_202_ACCEPTED)
async def cancel_plan(plan_id: PlanId, principal: SubmitterDep, app: AppDep) -> api.Plan:
    """Ends the probe of a plan that nobody waits for any more."""
    return await app.database.write(
        lambda session: plans.cancel_plan(session, principal.project_id, plan_id, now=app.clock.now())
    )


@router.get("/runs/{run_id}/plan")
async def compare_plan(run_id: RunId, principal: ReaderDep, app: AppDep) -> api.PlanComparison:
    """What was planned for a run, beside what it recorded. Not found for a run without a plan."""
    return await app.database.read(
        lambda session: plan_comparison.compare(session, principal.project_id, run_id, now=app.clock.now())
    )
