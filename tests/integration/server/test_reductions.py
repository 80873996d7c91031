"""A program may reduce several times under one name in a step: each is listed, in its order, with its place."""

import zlib
from binascii import b2a_base64

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.arrays import MAX_WHOLE_RUN_BYTES
from drumline_server.base.errors import NotFoundError
from drumline_server.storage.models import Reduction
from drumline_server.telemetry import reductions
from drumline_server.telemetry.reductions import ReductionFilter, get_reduction, list_reductions, read_elements
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


LARGE = {"shape": (4_000,), "dtype": "float32", "norm": 1.0}
ELEMENTS = bytes(range(256)) * 125
"""Of two such arrays."""


def test_every_element_is_read_apart_from_its_reduction(core: Core, member: Member) -> None:
    record_whole(member, ELEMENTS)
    record(member, ("loss", 3.0, "host"))

    kept, small = (read_whole(core, member, row.id) for row in read_page(core, member, None, 5).items)

    assert (kept.whole_bytes, kept.not_whole) == (len(ELEMENTS), None)
    assert elements(core, member, kept.id) == ELEMENTS
    assert (small.whole_bytes, small.not_whole) == (None, None)
    with pytest.raises(NotFoundError, match="elements of reduction"):
        elements(core, member, small.id)


def test_a_list_of_reductions_does_not_read_their_elements(core: Core, member: Member) -> None:
    record_whole(member, ELEMENTS)
    read = core.read(lambda session: session.scalars(select(Reduction)).one())
    assert "whole" not in read.__dict__
    assert "whole" not in core.read(lambda session: session.scalars(select(Reduction.body)).one())


def test_beyond_what_an_attempt_may_keep_a_reduction_says_that_its_elements_are_not_kept(
    core: Core, member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reductions, "MAX_WHOLE_RUN_BYTES", 2 * len(zlib.compress(ELEMENTS)))
    for _ in range(3):
        record_whole(member, ELEMENTS)
    found = [read_whole(core, member, row.id) for row in read_page(core, member, None, 5).items]
    assert [(one.whole_bytes is None, one.not_whole) for one in found] == [
        (False, None), (False, None), (True, "run_bytes"),
    ]  # fmt: skip
    again_member = again(core, member.worker, run_of(member), member)
    record_whole(again_member, ELEMENTS, step=1)
    newest = read_page(core, again_member, None, 5).items[-1]
    assert read_whole(core, again_member, newest.id).not_whole is None
    assert MAX_WHOLE_RUN_BYTES == 64 * 2**20


def record_whole(member: Member, raw: bytes, step: int = 0) -> None:
    """A large reduction of one replica with these elements."""
    whole = b2a_base64(zlib.compress(raw), newline=False).decode()
    fields = {"op": "sum", "step": step, "counts": (1,), "inputs": (LARGE,), "result": LARGE, "whole": whole}
    member.send(member.event("reduction", name="gradient", **fields))


def elements(core: Core, member: Member, reduction: str) -> bytes:
    """Of one reduction."""
    return core.read(lambda session: read_elements(session, core.project_id, run_of(member), reduction))


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
