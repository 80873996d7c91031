"""Runs that save, and what the server then knows and offers of their checkpoints."""

from typing import Any

from drumline.contracts import api
from drumline.contracts.retention import StoredRuns
from drumline_server.lifecycle import checkpoints
from drumline_server.services import submit
from support.core import TESTER, Core, Member, Worker
from support.submissions import MOST_WAITING

DAY_S = 86_400.0


def started(core: Core, worker: Worker, **changes: Any) -> Member:
    """A run, of one replica unless told otherwise, on that worker."""
    core.submit(**{"resources": {"replicas": 1}, **changes})
    core.schedule()
    return worker.take().start()


def save(member: Member, *steps: int) -> None:
    """Registers a checkpoint of each step."""
    for step in steps:
        path = f"f{member.claimed.fence}/step_{step}"
        member.send(member.event("checkpoint", step=step, path=path, size_bytes=10, manifest=f"sha256:{step}"))


def listed(core: Core, run_id: str, limit: int = 50, cursor: str | None = None) -> api.Page[api.Checkpoint]:
    """A page of the run's checkpoints, as the API shows them."""
    return core.read(
        lambda session: checkpoints.list_checkpoints(session, core.project_id, run_id, cursor=cursor, limit=limit)
    )


def offered(member: Member) -> list[tuple[int, int]]:
    """Fence and step of each checkpoint that the member may resume from, in the order in which it tries them."""
    return [(point.fence, point.step) for point in member.claimed.resume]


def rerun(core: Core, run_id: str, *, from_start: bool = False) -> api.Run:
    """Runs it again."""
    key, body = f"again-{run_id}-{from_start}", api.RerunRequest(from_start=from_start)
    request = submit.Rerun(core.project_id, TESTER, key, run_id, body, "tok_tester")
    return core.write(
        lambda session: submit.rerun(session, request, most_waiting=MOST_WAITING, now=core.clock.now())
    ).submitted.run


def expired(core: Core, worker: Worker, *runs: str) -> tuple[str, ...]:
    """What the worker may delete of those runs, if runs are kept for 30 days."""
    worker.register()
    body = StoredRuns(incarnation=worker.incarnation, runs=runs)
    before = core.clock.now() - int(30 * DAY_S * 1e6)
    return core.write(
        lambda session: checkpoints.expire_checkpoints(session, worker.host_id, body, ended_before=before)
    ).runs
