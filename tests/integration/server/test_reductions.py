"""A program may reduce several times under one name in a step: each is listed, in its order, with its place."""

import pytest
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline_server.telemetry.reductions import ReductionFilter, get_reduction, list_reductions
from support.attempts import again
from support.core import Core, Member

SEVERAL = 12
Page = api.Page[api.ReductionSummary]


@pytest.fixture
def member(core: Core) -> Member:
    """A member that runs."""
    worker = core.add_worker()
    core.submit(resources={"replicas": 8}, retries={"infrastructure": 9})
    core.schedule()
    return worker.take().start()


def test_several_reductions_of_one_name_in_a_step_keep_their_order_and_say_which_they_are(
    core: Core, member: Member
) -> None:
    record(member, ("loss", 3.0, "host"))
    record(member, *(("loss", float(number), "host") for number in range(SEVERAL)), step=1)
    record(member, ("other", 7.0, "host"), ("loss", 8.0, "in_step"), step=1)

    listed = [row for page in pages(core, member, limit=5) for row in page.items]

    told = {(row.name, row.origin, row.step, row.nth): (row.result, row.of) for row in listed}
    assert told == {
        ("loss", "host", 0, 1): (3.0, 1),
        **{("loss", "host", 1, number + 1): (float(number), SEVERAL) for number in range(SEVERAL)},
        ("other", "host", 1, 1): (7.0, 1),
        ("loss", "in_step", 1, 1): (8.0, 1),
    }
    whole = [read_whole(core, member, row.id) for row in listed]
    assert [(one.nth, one.of) for one in whole] == [(row.nth, row.of) for row in listed]


def test_a_step_that_was_made_again_counts_its_own_reductions_only(core: Core, member: Member) -> None:
    record(member, ("loss", 1.0, "host"), ("loss", 2.0, "host"))
    later = again(core, member.worker, run_of(member), member)
    record(later, ("loss", 3.0, "host"))

    ((row,),) = [page.items for page in pages(core, later, limit=5)]

    assert (row.result, row.nth, row.of) == (3.0, 1, 1)


def record(member: Member, *made: tuple[str, float, str], step: int = 0) -> None:
    """Reductions of names with their results and origins, in one batch."""
    arrays = [{"shape": (), "dtype": "float32", "values": (value,)} for _, value, _ in made]
    common = {"op": "sum", "step": step, "counts": (1,)}
    member.send(
        *(
            member.event("reduction", name=name, origin=origin, inputs=(array,), result=array, **common)
            for (name, _, origin), array in zip(made, arrays, strict=True)
        )
    )


def pages(core: Core, member: Member, *, limit: int) -> list[Page]:
    """All pages of the run's list."""
    found = [read_page(core, member, None, limit)]
    while found[-1].next is not None:
        found.append(read_page(core, member, found[-1].next, limit))
    return found


def read_page(core: Core, member: Member, cursor: str | None, limit: int) -> Page:
    """One page of it."""
    wanted = ReductionFilter(None, None, None)

    def read(session: Session) -> Page:
        return list_reductions(session, core.project_id, run_of(member), wanted, cursor=cursor, limit=limit)

    return core.read(read)


def read_whole(core: Core, member: Member, reduction: str) -> api.Reduction:
    """One of them."""
    return core.read(lambda session: get_reduction(session, core.project_id, run_of(member), reduction))


def run_of(member: Member) -> str:
    """The run that it works for."""
    return member.claimed.run
