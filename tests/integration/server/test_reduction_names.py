"""Which reductions there are is told from their counts, with steps evenly spread, and from few rows."""

import random
from collections import defaultdict
from functools import partial
from itertools import pairwise

import pytest
from sqlalchemy import insert, literal, select, text
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline_server.storage.models import Reduction, table_of
from drumline_server.telemetry.reductions import MAX_STEPS, reduction_names
from support.attempts import again
from support.core import Core, Member
from support.query_plans import read_plans, rows_read

ARRAY = {"shape": (), "dtype": "float32", "values": (1.0,)}
Kind = tuple[str, str, int | None, bool]
"""Name, op, axis, and whether the replicas' counts differ."""


@pytest.fixture
def member(core: Core) -> Member:
    """A member that runs."""
    worker = core.add_worker()
    core.submit(resources={"replicas": 8}, retries={"infrastructure": 9})
    core.schedule()
    return worker.take().start()


def record(member: Member, *recorded: tuple[Kind, int]) -> None:
    """Reductions of kinds at steps, in one batch."""
    member.send(*(member.event("reduction", **_fields(kind, step)) for kind, step in recorded))


def _fields(kind: Kind, step: int) -> dict[str, object]:
    name, op, axis, ragged = kind
    counts = (1, 2) if ragged else (2, 2)
    common = {"inputs": (ARRAY, ARRAY), "counts": counts, "denominator": None, "result": ARRAY}
    return {"name": name, "op": op, "axis": axis, "step": step, **common}


def shown(core: Core, run: str, attempt: str | None = None) -> dict[tuple[str, str, object], api.ReductionName]:
    """Each name as the API shows it."""
    names = core.read(lambda session: reduction_names(session, core.project_id, run, attempt)).names
    return {(name.name, name.op, name.axis): name for name in names}


@pytest.mark.parametrize("seed", range(4))
def test_names_are_what_a_look_at_every_reduction_gives(core: Core, member: Member, seed: int) -> None:
    chance = random.Random(seed)
    attempts: dict[str, list[tuple[Kind, int]]] = {}
    for number in range(3):
        if number:
            member = again(core, member.worker, member.claimed.run, member)
        begun = chance.choice((0, 30, 70))
        made = [
            (
                (chance.choice("abc"), chance.choice(("sum", "mean")), chance.choice((None, 0)), chance.random() < 0.2),
                step,
            )
            for step in range(begun, begun + chance.choice((1, 90)))
            for _ in range(chance.randrange(3))
        ]
        if made:
            record(member, *made)
            attempts[member.claimed.attempt] = made

    counting: list[tuple[Kind, int]] = []
    for made in attempts.values():
        first = min(step for _, step in made)
        counting = [(kind, step) for kind, step in counting if step < first] + made
    assert shown(core, member.claimed.run) == expected(counting)
    for attempt, made in attempts.items():
        assert shown(core, member.claimed.run, attempt) == expected(made)


def expected(made: list[tuple[Kind, int]]) -> dict[tuple[str, str, object], api.ReductionName]:
    """The names of reductions so few that all their steps are told."""
    alike: dict[tuple[str, str, int | None], list[tuple[int, bool]]] = defaultdict(list)
    for (name, op, axis, ragged), step in made:
        alike[name, op, axis].append((step, ragged))
    return {
        (name, op, axis): api.ReductionName.model_validate(
            {
                "name": name,
                "op": op,
                "axis": axis,
                "origin": "host",
                "recorded": len(recorded),
                "steps": tuple(sorted({step for step, _ in recorded})),
                "ragged_steps": tuple(sorted({step for step, ragged in recorded if ragged})),
            }
        )
        for (name, op, axis), recorded in alike.items()
    }


def test_of_many_steps_the_first_the_last_and_evenly_spread_ones_are_told(core: Core, member: Member) -> None:
    last, every = 10 * MAX_STEPS + 7, 5
    for start in range(0, last + 1, 4_000):
        steps = range(start, min(start + 4_000, last + 1))
        record(member, *((("loss", "mean", None, step % every == 0), step) for step in steps))

    (name,) = shown(core, member.claimed.run).values()

    assert name.recorded == last + 1
    for told, stride in ((name.steps, 1), (name.ragged_steps, every)):
        assert MAX_STEPS / 2 <= len(told) <= MAX_STEPS
        assert (told[0], told[-1]) == (0, last // stride * stride)
        assert max(after - before for before, after in pairwise(told)) <= 2 * last / len(told)
    assert all(step % every == 0 for step in name.ragged_steps)


def test_names_are_counted_before_the_step_from_which_a_later_attempt_recorded_again(
    core: Core, member: Member
) -> None:
    loss = ("loss", "mean", None, False)
    for start in range(0, 3 * MAX_STEPS, 4_000):
        record(member, *((loss, step) for step in range(start, start + 4_000)))
    member = again(core, member.worker, member.claimed.run, member)
    record(member, (loss, 2 * MAX_STEPS), (loss, 2 * MAX_STEPS + 1))

    (name,) = shown(core, member.claimed.run).values()

    assert name.recorded == 2 * MAX_STEPS + 2
    assert (name.steps[0], name.steps[-1]) == (0, 2 * MAX_STEPS + 1)
    assert len(name.steps) <= MAX_STEPS


def test_no_more_reductions_are_read_than_are_told(core: Core, member: Member) -> None:
    for start in range(0, 3 * MAX_STEPS, 3_000):
        record(member, *((("loss", "mean", None, False), step) for step in range(start, start + 3_000)))
    for number in range(15):
        core.write(partial(add_copies, number=number))
    if not core.database.url.startswith("sqlite"):
        core.write(lambda session: session.execute(text("ANALYZE reduction")))

    plans = read_plans(core, lambda session: reduction_names(session, core.project_id, member.claimed.run, None))

    if core.database.url.startswith("sqlite"):
        wanted = "SEARCH reduction USING COVERING INDEX ix_reduction_member_id_kind_level_step"
        assert any(wanted in plan for plan in plans)
        assert [line for plan in plans for line in plan.splitlines() if line.startswith("SCAN reduction")] == []
    else:
        assert sum(rows_read(plan, "reduction") for plan in plans) <= MAX_STEPS


def add_copies(session: Session, number: int) -> None:
    """Reductions of another kind, as many as there are of the first."""
    table = table_of(Reduction)
    changed = {
        "id": literal(f"red_{number}_").concat(table.c.id),
        "seq": table.c.seq + (number + 1) * 1_000_000,
        "kind": literal(number),
    }
    columns = [changed.get(column.name, column).label(column.name) for column in table.c]
    copies = select(*columns).where(table.c.seq < 1_000_000)
    session.execute(insert(table).from_select(table.c.keys(), copies))
