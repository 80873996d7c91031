"""Beside `/runs`: counts, groups and names of fields, saved views, changes of many runs, and how long runs are kept."""

from typing import Annotated

from fastapi import Path, Query, Response, status

from drumline.contracts import api
from drumline.contracts.api.run_lists import ViewName
from drumline.contracts.base import Text
from drumline.contracts.ids import BulkChangeId
from drumline_server.http.dependencies import (
    AdminDep,
    AppDep,
    Contains,
    KnownQuery,
    ReaderDep,
    SubmitterDep,
    api_router,
)
from drumline_server.http.routes.runs import Archived, Where
from drumline_server.lifecycle import deletion
from drumline_server.services import marks, run_matching
from drumline_server.services.run_lists import ListQuery, RunList

router = api_router(tags=["runs"])

By = Annotated[Text, Query(min_length=1, max_length=api.MAX_FIELD_NAME, description="The field to group by.")]
MostNames = Annotated[int, Query(ge=1, le=200)]
MostGroups = Annotated[int, Query(ge=1, le=200)]
View = Annotated[ViewName, Path(max_length=80)]


@router.get("/runs:count")
async def count_runs(
    principal: ReaderDep, _: KnownQuery, app: AppDep, where: Where = "", archived: Archived = False
) -> api.RunCount:
    """How many runs match a filter."""
    query = ListQuery(principal.project_id, where=where, with_archived=archived, now=app.clock.now())
    return await app.database.read(lambda session: api.RunCount(matching=RunList(session, query).count()))


@router.get("/runs:groups")
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


@router.get("/runs:fields")
async def list_run_fields(
    principal: ReaderDep, _: KnownQuery, app: AppDep, q: Contains = "", limit: MostNames = 50
) -> api.RunFields:
    """Names that the project's runs can be sorted and filtered by."""
    return await app.database.read(lambda session: run_matching.find_names(session, principal.project_id, q, limit))


@router.post("/runs:change", status_code=status.HTTP_202_ACCEPTED)
async def change_runs(body: api.BulkRequest, principal: SubmitterDep, app: AppDep) -> api.BulkChange:
    """Cancels, archives, stars, labels, notes or deletes many runs, a part at a time; `GET /bulk-changes/{id}` says how
    far it is.
    """
    return await app.database.write(
        lambda session: marks.begin_bulk(session, principal.project_id, body, by=principal.ref, now=app.clock.now())
    )


@router.get("/bulk-changes/{bulk_id}")
async def get_bulk_change(bulk_id: BulkChangeId, principal: ReaderDep, app: AppDep) -> api.BulkChange:
    """A change of many runs, and how far it is."""
    return await app.database.read(lambda session: marks.get_bulk(session, principal.project_id, bulk_id))


@router.get("/retention")
async def get_retention(principal: ReaderDep, app: AppDep) -> api.Retention:
    """How long the project keeps ended runs, and how much telemetry of them."""
    return await app.database.read(lambda session: deletion.get_retention(session, principal.project_id))


@router.put("/retention")
async def set_retention(body: api.RetentionChange, principal: AdminDep, app: AppDep) -> api.Retention:
    """Has the project keep ended runs so long from now on; what is beyond is deleted in the background."""
    return await app.database.write(
        lambda session: deletion.set_retention(
            session, principal.project_id, body, by=principal.ref, now=app.clock.now()
        )
    )


@router.get("/run-views")
async def list_run_views(principal: ReaderDep, app: AppDep) -> api.Page[api.RunView]:
    """The project's saved views of the list of runs, by name; always one page."""
    return await app.database.read(lambda session: marks.list_views(session, principal.project_id))


@router.put("/run-views/{name}")
async def save_run_view(name: View, body: api.RunListView, principal: SubmitterDep, app: AppDep) -> api.RunView:
    """Saves a view under its name, in place of one that had it."""
    return await app.database.write(
        lambda session: marks.save_view(
            session, principal.project_id, name, body, by=principal.ref, now=app.clock.now()
        )
    )


@router.delete("/run-views/{name}", status_code=status.HTTP_204_NO_CONTENT)
async def delete_run_view(name: View, principal: SubmitterDep, app: AppDep) -> Response:
    """Forgets a saved view."""
    await app.database.write(
        lambda session: marks.delete_view(session, principal.project_id, name, by=principal.ref, now=app.clock.now())
    )
    return Response(status_code=status.HTTP_204_NO_CONTENT)
