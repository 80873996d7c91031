"""`/runs`: submitting, listing, one run, cancelling, deleting, its attempts and events. Beside it counts, groups,
fields and saved views of lists, changes of many runs, how long runs are kept; and `/plan`: what a run would do, and
a run beside its plan.
"""

from typing import Annotated

from fastapi import Body, Header, Path, Query, Response, status

from drumline.contracts import api
from drumline.contracts.api.run_lists import ViewName
from drumline.contracts.base import BatchId, BulkChangeId, PlanId, RunId, Text
from drumline.contracts.plans import PlanRequest
from drumline.contracts.spec import JobName, RunSubmit
from drumline.contracts.stacks import RunStacks
from drumline.contracts.states import RunState
from drumline_server.http.dependencies import (
    DEFAULT_PAGE,
    AdminDep,
    AppDep,
    Contains,
    CursorText,
    Key,
    KnownQuery,
    Limit,
    ReaderDep,
    SubmitterDep,
    api_router,
)
from drumline_server.lifecycle import deletion
from drumline_server.scheduling.snapshot import SchedulingTerms
from drumline_server.services import plan_comparison, plans, run_changes, run_matching, runs, submit
from drumline_server.services.checking import require_storable
from drumline_server.services.run_lists import ListQuery, RunList
from drumline_server.services.submit import Submission
from drumline_server.storage.runs import RunFilters

router = api_router("/runs", tags=["runs"])


States = Annotated[list[RunState], Query(alias="state", max_length=8)]
Labels = Annotated[
    list[Annotated[Text, Query(max_length=265)]], Query(alias="label", max_length=16, description="`key=value`")
]
Search = Annotated[
    Text | None, Query(max_length=200, description="Part of the job's name, or the start or end of a run id.")
]
Owner = Annotated[
    Text | None, Query(max_length=100, description="Name of who submitted it, or the id of that token or session.")
]
Version = Annotated[int | None, Query(ge=1, lt=2**31, description="Number of the version; with `job`.")]
Where = Annotated[Text, Query(max_length=api.MAX_WHERE, description="Such as `params.lr > 0.1 and loss < 0.3`.")]
SortText = Annotated[
    Text,
    Query(max_length=api.MAX_FIELD_NAME + 1, description="A field, with `-` before it the greatest first."),
]
Columns = Annotated[
    list[Annotated[Text, Query(max_length=api.MAX_FIELD_NAME)]],
    Query(alias="column", max_length=api.MAX_COLUMNS, description="Fields to give with each run; repeatable."),
]
Archived = Annotated[bool, Query(description="Whether archived runs are among them.")]
Offset = Annotated[int, Query(ge=0, le=10_000_000, description="So many runs are passed over first.")]
Why = Annotated[Text, Query(max_length=200, description="Kept in the audit log.")]
After = Annotated[int, Query(ge=0, lt=2**53)]
Kinds = Annotated[
    list[Annotated[Text, Query(max_length=40)]],
    Query(alias="kind", max_length=16, description="Only events of this kind; repeatable."),
]


@router.post("", status_code=status.HTTP_201_CREATED)
async def submit_run(
    body: RunSubmit, key: Key, principal: SubmitterDep, app: AppDep, response: Response
) -> api.SubmittedRun:
    """Submits a run: makes the job and its version where they are new, and queues the run."""
    require_storable(body)
    request = submit.Submission(principal.project_id, principal.ref, key, body, principal.key)
    answer = await app.submissions.submit(request)
    if answer.replayed:
        response.headers["Idempotency-Replayed"] = "true"
    return answer.submitted


@router.get("")
async def list_runs(
    *,
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    states: States = [],  # noqa: B006 - FastAPI copies defaults
    job: JobName | None = None,
    labels: Labels = [],  # noqa: B006 - FastAPI copies defaults
    version: Version = None,
    owner: Owner = None,
    batch: BatchId | None = None,
    q: Search = None,
    where: Where = "",
    sort: SortText = "-created",
    columns: Columns = [],  # noqa: B006 - FastAPI copies defaults
    archived: Archived = False,
    cursor: CursorText = None,
    offset: Offset = 0,
    limit: Limit = DEFAULT_PAGE,
) -> api.Page[api.RunSummary]:
    """The project's runs that match all filters, each with what it waits for if it does."""
    filters = RunFilters(
        states=tuple(states),
        job=job,
        version=version,
        owner=owner,
        batch=batch,
        labels=runs.parse_labels(labels),
        search=q or "",
        archived=archived,
    )
    query = ListQuery(principal.project_id, where, sort, archived, app.clock.now())
    wanted = runs.Wanted(query, filters, columns, cursor, offset, limit)
    terms = SchedulingTerms.of(app.settings)
    return await app.database.read(lambda session: runs.list_or_find(session, wanted, terms))


@router.patch("/{run_id}")
async def patch_run(run_id: RunId, body: api.RunPatch, principal: SubmitterDep, app: AppDep) -> api.Run:
    """Changes labels, note, star, or whether lists show the run; at any time, also after its end."""
    return await app.database.write(
        lambda session: run_changes.patch(
            session, principal.project_id, run_id, body, by=principal.ref, now=app.clock.now()
        )
    )


@router.delete("/{run_id}")
async def delete_run(run_id: RunId, principal: SubmitterDep, app: AppDep, why: Why = "") -> api.DeletedRun:
    """Deletes a run that has ended, for good: nobody sees it from now on, and all that is stored of it is erased.

    What it used stays in the ledger, and who deleted it in the audit log. Asking again answers the same.
    """
    return await app.database.write(
        lambda session: run_changes.delete_run(
            session, principal.project_id, run_id, why, by=principal.ref, now=app.clock.now()
        )
    )


@router.get("/{run_id}")
async def get_run(run_id: RunId, principal: ReaderDep, app: AppDep) -> api.Run:
    """One run, with the reason why it waits if it does, and what would let it start."""
    terms = SchedulingTerms.of(app.settings)
    return await app.database.read(
        lambda session: runs.get_run(session, principal.project_id, run_id, terms, now=app.clock.now())
    )


@router.post("/{run_id}:cancel", status_code=status.HTTP_202_ACCEPTED)
async def cancel_run(
    run_id: RunId, principal: SubmitterDep, app: AppDep, body: Annotated[api.CancelRequest | None, Body()] = None
) -> api.Run:
    """Asks a run to stop. A waiting run is cancelled at once; a running program has its grace period."""
    request = run_changes.Cancellation(principal.project_id, run_id, principal.ref, body or api.CancelRequest())
    return await app.database.write(lambda session: run_changes.cancel(session, request, now=app.clock.now()))


@router.post("/{run_id}/stacks", status_code=status.HTTP_202_ACCEPTED)
async def ask_stacks(run_id: RunId, principal: SubmitterDep, app: AppDep) -> RunStacks:
    """Asks every live process of a run where it stands, before any limit; `GET` shows the answers, in 2 s as a rule."""
    return await app.database.write(
        lambda session: runs.ask_stacks(session, principal.project_id, run_id, by=principal.ref, now=app.clock.now())
    )


@router.get("/{run_id}/stacks")
async def get_stacks(run_id: RunId, principal: ReaderDep, app: AppDep) -> RunStacks:
    """Where the processes of a run's newest attempt stood when they were last asked, by rank."""
    return await app.database.read(
        lambda session: runs.get_stacks(session, principal.project_id, run_id, now=app.clock.now())
    )


@router.post("/{run_id}:rerun", status_code=status.HTTP_201_CREATED)
async def rerun_run(
    *,
    run_id: RunId,
    key: Key,
    principal: SubmitterDep,
    app: AppDep,
    response: Response,
    body: Annotated[api.RerunRequest | None, Body()] = None,
) -> api.SubmittedRun:
    """Queues a new run with the version, parameters and options of an old one, whatever is current now."""
    request = submit.Rerun(principal.project_id, principal.ref, key, run_id, body or api.RerunRequest(), principal.key)
    answer = await app.database.write(
        lambda session: submit.rerun(session, request, most_waiting=app.settings.waiting_runs, now=app.clock.now())
    )
    if answer.replayed:
        response.headers["Idempotency-Replayed"] = "true"
    return answer.submitted


@router.get("/{run_id}/attempts")
async def list_attempts(
    run_id: RunId, principal: ReaderDep, app: AppDep, cursor: CursorText = None, limit: Limit = DEFAULT_PAGE
) -> api.Page[api.Attempt]:
    """The attempts of a run with their members, newest first."""
    return await app.database.read(
        lambda session: runs.list_attempts(session, principal.project_id, run_id, cursor=cursor, limit=limit)
    )


@router.get("/{run_id}/events")
async def list_events(
    *,
    run_id: RunId,
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    after: After = 0,
    kinds: Kinds = [],  # noqa: B006 - FastAPI copies defaults
    limit: Limit = DEFAULT_PAGE,
) -> api.Page[api.RunEvent]:
    """The events of a run in order, those after the event number `after`. `next` is the next `after`."""
    return await app.database.read(
        lambda session: runs.list_events(session, principal.project_id, run_id, after=after, limit=limit, kinds=kinds)
    )


lists_router = api_router(tags=["runs"])

By = Annotated[Text, Query(min_length=1, max_length=api.MAX_FIELD_NAME, description="The field to group by.")]
MostNames = Annotated[int, Query(ge=1, le=200)]
MostGroups = Annotated[int, Query(ge=1, le=200)]
View = Annotated[ViewName, Path(max_length=80)]


@lists_router.get("/runs:count")
async def count_runs(
    principal: ReaderDep, _: KnownQuery, app: AppDep, where: Where = "", archived: Archived = False
) -> api.RunCount:
    """How many runs match a filter."""
    query = ListQuery(principal.project_id, where=where, with_archived=archived, now=app.clock.now())
    return await app.database.read(lambda session: api.RunCount(matching=RunList(session, query).count()))


@lists_router.get("/runs:groups")
async def group_runs(
    *,
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    by: By,
    where: Where = "",
    archived: Archived = False,
    limit: MostGroups = 50,
) -> api.RunGroups:
    """The largest groups of the matching runs by the value of a field."""
    query = ListQuery(principal.project_id, where=where, with_archived=archived, now=app.clock.now())
    return await app.database.read(lambda session: RunList(session, query).groups(by, limit))


@lists_router.get("/runs:fields")
async def list_run_fields(
    principal: ReaderDep, _: KnownQuery, app: AppDep, q: Contains = "", limit: MostNames = 50
) -> api.RunFields:
    """Names that the project's runs can be sorted and filtered by."""
    return await app.database.read(lambda session: run_matching.find_names(session, principal.project_id, q, limit))


@lists_router.post("/runs:change", status_code=status.HTTP_202_ACCEPTED)
async def change_runs(body: api.BulkRequest, principal: SubmitterDep, app: AppDep) -> api.BulkChange:
    """Cancels, archives, stars, labels, notes or deletes many runs, a part at a time; `GET /bulk-changes/{id}` says how
    far it is.
    """
    return await app.database.write(
        lambda session: run_changes.begin_bulk(
            session, principal.project_id, body, by=principal.ref, now=app.clock.now()
        )
    )


@lists_router.get("/bulk-changes/{bulk_id}")
async def get_bulk_change(bulk_id: BulkChangeId, principal: ReaderDep, app: AppDep) -> api.BulkChange:
    """A change of many runs, and how far it is."""
    return await app.database.read(lambda session: run_changes.get_bulk(session, principal.project_id, bulk_id))


@lists_router.get("/retention")
async def get_retention(principal: ReaderDep, app: AppDep) -> api.Retention:
    """How long the project keeps ended runs, and how much telemetry of them."""
    return await app.database.read(lambda session: deletion.get_retention(session, principal.project_id))


@lists_router.put("/retention")
async def set_retention(body: api.RetentionChange, principal: AdminDep, app: AppDep) -> api.Retention:
    """Has the project keep ended runs so long from now on; what is beyond is deleted in the background."""
    return await app.database.write(
        lambda session: deletion.set_retention(
            session, principal.project_id, body, by=principal.ref, now=app.clock.now()
        )
    )


@lists_router.get("/run-views")
async def list_run_views(principal: ReaderDep, app: AppDep) -> api.Page[api.RunView]:
    """The project's saved views of the list of runs, by name; always one page."""
    return await app.database.read(lambda session: run_changes.list_views(session, principal.project_id))


@lists_router.put("/run-views/{name}")
async def save_run_view(name: View, body: api.RunListView, principal: SubmitterDep, app: AppDep) -> api.RunView:
    """Saves a view under its name, in place of one that had it."""
    return await app.database.write(
        lambda session: run_changes.save_view(
            session, principal.project_id, name, body, by=principal.ref, now=app.clock.now()
        )
    )


@lists_router.delete("/run-views/{name}", status_code=status.HTTP_204_NO_CONTENT)
async def delete_run_view(name: View, principal: SubmitterDep, app: AppDep) -> Response:
    """Forgets a saved view."""
    await app.database.write(
        lambda session: run_changes.delete_view(
            session, principal.project_id, name, by=principal.ref, now=app.clock.now()
        )
    )
    return Response(status_code=status.HTTP_204_NO_CONTENT)


plans_router = api_router(tags=["plan"])

PlanKey = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="Names this request: the same key and body give the same plan, however often it is sent.",
    ),
]


@plans_router.post("/plan", status_code=status.HTTP_201_CREATED)
async def make_plan(*, body: PlanRequest, key: PlanKey, principal: SubmitterDep, app: AppDep) -> api.Plan:
    """Says what a run would do, and runs nothing: its placement at once, the rest when a worker has probed it."""
    now = app.clock.now()
    submission = Submission(principal.project_id, principal.ref, key, body.run, principal.key)
    order = plans.PlanSubmission(submission, body, SchedulingTerms.of(app.settings))
    return await plans.plan_run(app.database, order, now=now)


@plans_router.get("/plan/{plan_id}")
async def get_plan(plan_id: PlanId, principal: ReaderDep, app: AppDep) -> api.Plan:
    """A plan as far as it is known. Ask again while its probe is `waiting` or `running`."""
    return await app.database.read(
        lambda session: plans.get_plan(session, principal.project_id, plan_id, now=app.clock.now())
    )


@plans_router.post("/plan/{plan_id}:cancel", status_code=status.HTTP_202_ACCEPTED)
async def cancel_plan(plan_id: PlanId, principal: SubmitterDep, app: AppDep) -> api.Plan:
    """Ends the probe of a plan that nobody waits for any more."""
    return await app.database.write(
        lambda session: plans.cancel_plan(session, principal.project_id, plan_id, now=app.clock.now())
    )


@plans_router.get("/runs/{run_id}/plan")
async def compare_plan(run_id: RunId, principal: ReaderDep, app: AppDep) -> api.PlanComparison:
    """What was planned for a run, beside what it recorded. Not found for a run without a plan."""
    return await app.database.read(
        lambda session: plan_comparison.compare(session, principal.project_id, run_id, now=app.clock.now())
    )
