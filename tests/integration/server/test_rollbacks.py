"""Reductions of a run of several attempts: what an attempt recorded again does not count twice."""

import pytest

from drumline.contracts import api
from drumline_server.base.errors import NotFoundError
from drumline_server.telemetry import reductions
from drumline_server.telemetry.reductions import ReductionFilter, reduction_names
from support.attempts import again
from support.core import Core, Member

pytestmark = pytest.mark.both_databases

ARRAY = {"shape": (), "dtype": "float32", "values": (1.0,)}
LATER = ReductionFilter(name="loss", step_from=4, step_to=None)


def record(member: Member, name: str, *steps: int) -> None:
    """A reduction of that name at each of the steps."""
    fields = {"op": "sum", "axis": None, "inputs": (ARRAY,), "counts": (1,), "denominator": None, "result": ARRAY}
    member.send(*(member.event("reduction", name=name, step=step, **fields) for step in steps))


def page_of(
    core: Core, run_id: str, wanted: ReductionFilter, cursor: str | None, limit: int
) -> api.Page[api.ReductionSummary]:
    """One page of the list."""
    return core.read(
        lambda session: reductions.list_reductions(session, core.project_id, run_id, wanted, cursor=cursor, limit=limit)
    )


def listed(core: Core, run_id: str, wanted: ReductionFilter, *, limit: int = 100) -> list[tuple[str, int]]:
    """Attempt and step of each, page by page."""
    page = page_of(core, run_id, wanted, None, limit)
    items = [*page.items]
    while page.next is not None:
        page = page_of(core, run_id, wanted, page.next, limit)
        items += page.items
    return [(item.attempt, item.step) for item in items]


def steps(core: Core, run_id: str, attempt: str | None = None) -> dict[str, tuple[int, ...]]:
    """By name the steps at which it was recorded."""
    names = core.read(lambda session: reduction_names(session, core.project_id, run_id, attempt)).names
    assert all(name.recorded == len(name.steps) for name in names)
    return {name.name: name.steps for name in names}


def test_what_a_later_attempt_rolled_back_is_cut_and_stays_with_its_own_attempt(core: Core) -> None:
    worker = core.add_worker()
    run = core.submit(resources={"replicas": 8})
    core.schedule()
    member = worker.take().start()
    record(member, "loss", *range(9))
    record(member, "accuracy", 3, 8)
    first = member.claimed.attempt
    member = again(core, worker, run.id, member)
    # It says nothing before it fails: it rolls nothing back.
    member = again(core, worker, run.id, member)
    last = member.claimed.attempt
    assert steps(core, run.id) == {"accuracy": (3, 8), "loss": tuple(range(9))}

    record(member, "loss", 6, 7)

    assert steps(core, run.id) == {"accuracy": (3,), "loss": tuple(range(8))}
    assert steps(core, run.id, first) == {"accuracy": (3, 8), "loss": tuple(range(9))}
    assert steps(core, run.id, last) == {"loss": (6, 7)}
    expected = [(first, 4), (first, 5), (last, 6), (last, 7)]
    assert listed(core, run.id, LATER) == listed(core, run.id, LATER, limit=1) == expected
    assert listed(core, run.id, ReductionFilter("loss", 7, None, first)) == [(first, 7), (first, 8)]


def test_attempt_that_begins_anew_replaces_all_before_it(core: Core) -> None:
    worker = core.add_worker()
    run = core.submit(resources={"replicas": 8})
    core.schedule()
    member = worker.take().start()
    record(member, "loss", 0, 1, 2)
    member = again(core, worker, run.id, member)
    record(member, "loss", 2)
    member = again(core, worker, run.id, member)
    record(member, "loss", 0)

    assert steps(core, run.id) == {"loss": (0,)}


def test_reductions_of_an_attempt_of_another_run_are_not_found(core: Core) -> None:
    core.add_worker()
    core.submit(resources={"replicas": 4})
    other = core.submit(resources={"replicas": 4})
    core.schedule()
    attempt = core.attempts(other.id)[0].id
    (mine,) = {run.id for run in core.runs().items} - {other.id}

    with pytest.raises(NotFoundError):
        listed(core, mine, ReductionFilter(None, None, None, attempt))
    with pytest.raises(NotFoundError):
        steps(core, mine, attempt)
