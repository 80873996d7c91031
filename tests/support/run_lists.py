"""What loops of the server and people do to lists of runs, and what they see of them, on a `Core`."""

from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline_server.lifecycle.run_changes import bulk_part, open_bulks
from drumline_server.services import run_changes
from drumline_server.services.run_lists import FoundPage, ListQuery, RunList, field_values
from drumline_server.storage import fields
from support.core import TESTER, Core


def spread_fields(core: Core) -> None:
    """One round of the loop that makes fields of metrics, once they are due."""
    core.clock.advance(fields.SPREAD_AFTER_US / 1e6)
    while core.write(partial(fields.spread_due, now=core.clock.now())):
        pass


def change_runs(core: Core) -> int:
    """What is left of changes of many runs, in parts; how many there were."""
    parts = 0
    while ids := core.read(open_bulks):
        core.write(partial(bulk_part, bulk_id=ids[0], now=core.clock.now()))
        parts += 1
    return parts


def mark(core: Core, run_id: str, **change: Any) -> api.Run:  # Any: fields of RunPatch
    """Changes what people add to a run."""
    patch = api.RunPatch.model_validate(change)
    return core.write(
        lambda session: run_changes.patch(session, core.project_id, run_id, patch, by=TESTER, now=core.clock.now())
    )


def query(core: Core, where: str = "", sort: str = "", **more: Any) -> ListQuery:
    """What a list is asked for."""
    return ListQuery(core.project_id, where, sort, now=core.clock.now(), **more)


def found(core: Core, where: str = "", sort: str = "created", *, limit: int = 200, offset: int = 0) -> list[str]:
    """Ids of a page, which is read page by page where it has few rows."""
    ids: list[str] = []
    cursor = None
    while True:
        page = core.read(partial(page_of, query(core, where, sort), cursor, offset, limit))
        ids += [run.id for run in page.runs]
        cursor = page.next
        if cursor is None:
            return ids


def page_of(asked: ListQuery, cursor: str | None, offset: int, limit: int, session: Session) -> FoundPage:
    """One page."""
    return RunList(session, asked).page(cursor, 0 if cursor else offset, limit)


def count(core: Core, where: str) -> int:
    """How many runs match."""
    return core.read(lambda session: RunList(session, query(core, where)).count())


def values(core: Core, run: str, *columns: str) -> dict[str, int | float | str]:
    """What a run has in the columns."""
    page = core.read(lambda session: RunList(session, query(core, f"id = {run}")).page(None, 0, 1))
    shown = core.read(lambda session: field_values(session, core.project_id, page.runs, columns, now=core.clock.now()))
    return shown[run]


def with_parameters(core: Core, *parameters: dict[str, Any], **more: Any) -> list[str]:
    """Ids of queued runs, one for each of these."""
    return [core.queue(parameters=each, **more).id for each in parameters]
