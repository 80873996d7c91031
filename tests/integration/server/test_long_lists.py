"""Lists of more runs than are looked up one by one: the database cuts their pages, in any order."""

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import pytest
from sqlalchemy import select, text, update
from sqlalchemy.orm import Session

from drumline_server.services.run_lists import ListQuery, RunList, field_values
from drumline_server.storage.database import Database
from drumline_server.storage.models import Run
from drumline_server.storage.run_sets import RunSet, with_columns
from support.core import Core
from support.query_plans import read_plans
from support.run_fields import seed_runs
from support.statements import statements

pytestmark = pytest.mark.both_databases

_RUNS = 1_700
_SORTS = ("-created", "params.p0", "-params.opt", "-job", "owner", "duration")
_COLUMNS = ("params.p1", "params.opt", "loss", "state")
_FILTERS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "params.p1 > 0.2": lambda run: run["params.p1"] > 0.2,
    "params.opt in (adam, sgd, lion)": lambda run: run["params.opt"] != "adagrad",
    "not params.opt ~ ADA or state in (failed, cancelled)": lambda run: (
        "ada" not in run["params.opt"] or run["state"] != "SUCCEEDED"
    ),
    "params.p1 > 0.2 and not loss > 0.9": lambda run: run["params.p1"] > 0.2 and run["loss"] <= 0.9,
}


@pytest.fixture
def long(core: Core) -> Core:
    """A core with many runs that have ended, each with all fields."""
    seed_runs(core, _RUNS)
    core.write(lambda session: session.execute(update(Run).where(Run.ended_at.is_(None)).values(archived_at=1)))
    return core


def ask(core: Core, where: str = "", sort: str = "-created") -> ListQuery:
    return ListQuery(core.project_id, where, sort, now=core.clock.now())


def page(core: Core, asked: ListQuery, cursor: str | None = None, *, offset: int = 0, limit: int = 20) -> Any:
    return core.read(lambda session: RunList(session, asked).page(cursor, offset, limit))


def count(session: Session, asked: ListQuery) -> int:
    return RunList(session, asked).count()


def whole(core: Core, asked: ListQuery, limit: int = 10_000) -> list[str]:
    """Ids of all runs, page by page."""
    shown = page(core, asked, limit=limit)
    ids = [run.id for run in shown.runs]
    while shown.next is not None:
        shown = page(core, asked, shown.next, limit=limit)
        ids += [run.id for run in shown.runs]
    return ids


def test_pages_of_many_matches_are_cut_as_a_plain_look_at_each_run_does(long: Core) -> None:
    runs = page(long, ask(long), limit=10_000).runs
    read = partial(field_values, project_id=long.project_id, runs=runs, columns=_COLUMNS, now=long.clock.now())
    values = long.read(read)
    for sort in _SORTS:
        everything = whole(long, ask(long, sort=sort))
        assert len(everything) == _RUNS - 1
        for where, holds in _FILTERS.items():
            wanted = [run for run in everything if holds(values[run])]
            asked = ask(long, where, sort)

            assert whole(long, asked, 700) == wanted, asked
            assert [run.id for run in page(long, asked, offset=900).runs] == wanted[900:920], asked
            assert [run.id for run in page(long, asked, offset=len(wanted) - 5).runs] == wanted[-5:], asked
            with statements() as sent:
                assert page(long, asked, offset=len(wanted)).runs == ()
            assert not [statement for statement, _ in sent if "ORDER BY" in statement], asked


def test_many_archived_runs_are_out_of_sight_of_each_page(long: Core) -> None:
    before = {sort: page(long, ask(long, sort=sort), limit=10_000).runs for sort in _SORTS}
    long.write(lambda session: session.execute(update(Run).where(Run.number % 10 < 7).values(archived_at=1)))
    for sort, everything in before.items():
        wanted = [run.id for run in everything if run.number % 10 >= 7]

        assert whole(long, ask(long, sort=sort), 200) == wanted, sort
        assert [run.id for run in page(long, ask(long, sort=sort), offset=300).runs] == wanted[300:320], sort
        assert page(long, ask(long, sort=sort), offset=len(wanted)).runs == (), sort


def test_runs_far_apart_are_listed_one_by_one(long: Core) -> None:
    """Numbers are those of all projects: of a small one they may lie far apart."""
    everything = [run.number for run in page(long, ask(long), limit=10_000).runs]
    far = {*everything[::3], *range(2**40, 2**50, 2**40)}
    assert len(everything[::3]) < 1_000 < len(far)

    among, number = RunSet(far), with_columns(long.project_id).selected_columns[0]
    kept = long.read(lambda session: session.scalars(select(Run.number).where(among.has(session, number))).all())

    assert set(kept) == set(everything[::3])


def test_filters_read_one_index_and_no_rows(sqlite_url: str) -> None:
    indexes = {
        "state = succeeded": "ix_run_project_id_state_created_at_id_number",
        "owner in (user-1, user-2)": "ix_run_project_id_submitted_by_created_at_id_number",
        "params.opt in (adam, sgd)": "ix_run_field_value",
    }
    with closing(Database(sqlite_url)) as database:
        core = Core(database)
        seed_runs(core, 200)
        core.write(lambda session: session.execute(text("ANALYZE")))
        for where, index in indexes.items():
            plans = read_plans(core, partial(count, asked=ask(core, where)))

            assert [plan for plan in plans if f"USING COVERING INDEX {index} " in plan], plans
            assert not [plan for plan in plans if "MULTI-INDEX OR" in plan], plans


def test_postgresql_is_told_that_its_indexes_are_quick_to_read(postgres_url: str) -> None:
    def shown(session: Session) -> list[str]:
        return [str(session.scalar(text(f"SHOW {name}"))) for name in ("random_page_cost", "work_mem")]

    with closing(Database(postgres_url)) as database:
        assert database.read_now(shown) == database.write_now(shown) == ["1.1", "16MB"]


def test_rows_of_postgresql_come_in_binary(postgres_url: str) -> None:
    def form(session: Session) -> int:
        rows: Any = session.execute(text("SELECT CAST('x' AS bytea)"))
        return int(rows.cursor.pgresult.fformat(0))

    with closing(Database(postgres_url)) as database:
        assert database.read_now(form) == database.write_now(form) == 1
