"""How long projects keep ended runs: by age and by size, the oldest going first, starred ones never."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import func, select

from drumline.contracts import api
from drumline_server.lifecycle import deletion
from drumline_server.scheduling.leadership import SoleServer
from drumline_server.scheduling.loops import retain_runs
from drumline_server.storage.models import Audit, LogChunk, Metric, MetricChunk, Run
from support.checkpoints import DAY_S, save, started
from support.core import TESTER, Core
from support.deletions import ended_run
from support.edge import EdgeServer
from support.run_lists import mark

pytestmark = pytest.mark.both_databases

V1 = "/api/v1"


def keep(core: Core, **bounds: Any) -> api.Retention:
    wanted = api.RetentionChange.model_validate(bounds)
    return core.write(
        lambda session: deletion.set_retention(session, core.project_id, wanted, by=TESTER, now=core.clock.now())
    )


def retain(core: Core) -> None:
    """A round of the loop."""
    asyncio.run(retain_runs(core.database, core.clock, SoleServer()))


def left(core: Core) -> set[str]:
    return {run.id for run in core.runs(limit=100).items}


def cancelled(core: Core) -> str:
    run = core.queue()
    core.cancel(run.id)
    return run.id


def test_nothing_is_deleted_unless_somebody_asks_for_it(core: Core) -> None:
    run = cancelled(core)
    core.clock.advance(1_000 * DAY_S)
    retain(core)
    assert left(core) == {run}


def test_runs_that_ended_too_long_ago_are_deleted_but_for_those_that_are_starred_or_needed(core: Core) -> None:
    worker = core.add_worker()
    source = started(core, worker)
    save(source, 10)
    source.end()
    starred, live = cancelled(core), core.submit(resources={"replicas": 1}, resume_from=source.claimed.run).id
    old = [cancelled(core) for _ in range(60)]
    mark(core, starred, starred=True)
    core.clock.advance(20 * DAY_S)
    young = cancelled(core)
    keep(core, days=30)
    core.clock.advance(11 * DAY_S)
    retain(core)

    assert left(core) == {source.claimed.run, starred, live, young}
    query = select(Audit).where(Audit.action == "run.delete", Audit.target == old[0])
    (act,) = core.read(lambda session: session.scalars(query).all())
    assert (act.principal, act.body["why"]) == ("drumline", "ended more than 30 days ago")
    core.cancel(live)
    retain(core)
    assert left(core) == {starred, live, young}, "nobody resumes from it any more"


def test_beyond_so_many_bytes_of_telemetry_the_oldest_are_deleted(core: Core) -> None:
    worker = core.add_worker()
    runs = [ended_run(core, worker) for _ in range(3)]
    keep(core, telemetry_bytes=2**40)
    retain(core)
    sizes = core.read(lambda session: {run.id: run.telemetry_bytes for run in session.scalars(select(Run))})
    told = core.read(lambda session: deletion.get_retention(session, core.project_id))
    assert told.measured_bytes == sum(size or 0 for size in sizes.values())
    assert sizes[runs[0]] == sizes[runs[2]]
    assert (sizes[runs[0]] or 0) > stored_bytes(core) / 3

    keep(core, telemetry_bytes=told.measured_bytes - 1)
    mark(core, runs[0], starred=True)
    retain(core)
    assert left(core) == {runs[0], runs[2]}, "the oldest that is not starred"
    retain(core)
    assert left(core) == {runs[0], runs[2]}


def stored_bytes(core: Core) -> int:
    """Of output and metrics of all runs, the least that counts."""
    sums = (
        select(func.sum(func.length(LogChunk.content))),
        select(func.sum(func.length(Metric.points))),
        select(func.sum(func.length(MetricChunk.points))),
    )
    return core.read(lambda session: sum(session.scalar(each) or 0 for each in sums))


def test_an_admin_says_how_long_runs_are_kept_and_a_run_says_when_it_goes(server: EdgeServer) -> None:
    core = server.core
    run = cancelled(core)
    assert server.admin.get(f"{V1}/retention").json() == {"days": None, "telemetry_bytes": None, "measured_bytes": 0}
    assert server.admin.get(f"{V1}/runs/{run}").json()["deleted_from"] is None
    kept = server.admin.put(f"{V1}/retention", json={"days": 30})
    assert (kept.status_code, kept.json()["days"]) == (200, 30)
    told = api.Run.model_validate(server.admin.get(f"{V1}/runs/{run}").json())
    assert told.ended_at is not None
    assert told.deleted_from is not None
    assert (told.deleted_from - told.ended_at).days == 30
    mark(core, run, starred=True)
    assert server.admin.get(f"{V1}/runs/{run}").json()["deleted_from"] is None
    assert server.client(server.token("operator")).put(f"{V1}/retention", json={"days": 1}).status_code == 403
    for wrong in ({"days": 0}, {"telemetry_bytes": -1}, {"weeks": 1}):
        assert server.admin.put(f"{V1}/retention", json=wrong).status_code == 422
    assert server.admin.put(f"{V1}/retention", json={}).json()["days"] is None
