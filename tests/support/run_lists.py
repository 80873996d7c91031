"""What loops of the server and people do to lists of runs, on a `Core`."""

from functools import partial
from typing import Any

from drumline.contracts import api
from drumline_server.lifecycle.run_changes import bulk_part, open_bulks
from drumline_server.services import run_changes
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
