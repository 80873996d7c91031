"""Runs are found, sorted and grouped by what is of the run itself, and by what its program takes by default."""

import random

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from drumline_server.base.errors import FilterError
from drumline_server.services.run_lists import RunList
from drumline_server.storage import run_sets
from drumline_server.storage.fields import MOST_PARAMETERS
from drumline_server.storage.run_sets import RUN_COLUMNS
from drumline_server.storage.runs import RunFilters, runs_page
from support.core import Core
from support.run_fields import seed_runs
from support.run_lists import count, found, mark, query, values, with_parameters

pytestmark = pytest.mark.both_databases


def test_parameters_that_were_left_out_are_what_the_program_takes_for_them(core: Core) -> None:
    """`digits` takes a learning rate of 0.1 and 20 epochs."""
    left_out, given, whole = with_parameters(core, {}, {"learning_rate": 0.5}, {"learning_rate": 0.1, "epochs": 20})

    assert found(core, "params.learning_rate < 0.2") == [left_out, whole]
    assert found(core, "params.epochs = 20 and params.learning_rate = 0.5") == [given]
    assert values(core, left_out, "params.learning_rate", "params.epochs") == {
        "params.learning_rate": 0.1,
        "params.epochs": 20,
    }
    run = core.run(given)
    assert (run.parameters, run.spec.defaults) == ({"learning_rate": 0.5}, {"learning_rate": 0.1, "epochs": 20})


def test_defaults_give_way_to_given_parameters_where_a_run_has_too_many(core: Core) -> None:
    run = core.queue(parameters={f"p{number:03d}": number for number in range(MOST_PARAMETERS)}).id

    assert values(core, run, "params.p000", f"params.p{MOST_PARAMETERS - 1}").keys() == {
        "params.p000",
        f"params.p{MOST_PARAMETERS - 1}",
    }
    core.queue(parameters={})
    assert found(core, "params.epochs") != []
    assert run not in found(core, "params.epochs")


def test_words_that_a_column_holds_are_found_in_any_case(core: Core) -> None:
    run = core.queue(parameters={}).id
    core.cancel(run)
    waiting = core.queue(parameters={}).id

    for where in ("state = cancelled", "reason = cancelled", 'reason in ("CANCELLED", hang)', "reason ~ cancel"):
        assert found(core, where) == [run], where
    for where in ("not reason", "state = Queued and strategy = Mirrored", "state > CANCELLED"):
        assert found(core, where) == [waiting], where
    groups = core.read(lambda session: RunList(session, query(core)).groups("reason", 10))
    assert [(group.value, group.runs, found(core, group.where)) for group in groups.items if group.value] == [
        ("CANCELLED", 1, [run])
    ]


def test_a_run_is_found_by_the_short_id_that_lists_show(core: Core) -> None:
    run, other = (core.queue(parameters={}).id for _ in range(2))
    short = f"r-{run[-5:].lower()}"

    for where in (f"id = {short}", f"id in ({short}, r-00000)", f"id ~ {short}", f"id = {run[-8:]}", f"id = {run}"):
        assert found(core, where) == [run], where
    assert found(core, f"id != {short}") == [other]
    for where in ("id = ''", "id = r-", "id = %", "id = r-____", "id = 0"):
        assert found(core, where) == [], where
    for search in (short, short.upper(), run[-5:], run[:20] + run[20:].lower()):
        filters = RunFilters(search=search)
        page = core.read(lambda session: runs_page(session, core.project_id, filters, None, 10))  # noqa: B023
        assert [each.id for each in page] == [run], search


def test_a_day_is_all_of_it(core: Core) -> None:
    before = core.queue(parameters={}).id
    day = values(core, before, "created")["created"]
    core.clock.advance(86_400)
    after = core.queue(parameters={}).id
    first = str(day)[:10]

    assert found(core, f"created = {first}") == [before]
    assert found(core, f"created != {first}") == [after]
    assert found(core, f"created in ({first}, 2020-01-01)") == [before]
    assert found(core, f"created = {day}") == [before]
    assert found(core, f"started = {first}") == found(core, f"started != {first}") == []


def test_a_length_of_time_has_units_and_a_number_is_not_taken_for_a_text(core: Core) -> None:
    (run,) = with_parameters(core, {"x": 16, "text": "1_000", "day": "2026-11-27"})
    core.clock.advance(5_400.5)

    for where in (
        "total_duration = 1h30m500ms",
        "total_duration > 1h30m",
        "total_duration < 1.6h",
        "total_duration > 90m",
    ):
        assert found(core, where) == [run], where
    assert found(core, "created > -1.5w and total_duration < 2w") == found(core, "created > -1h31m") == [run]
    assert found(core, "created > -1h") == []
    for where in ("total_duration > 1h30", "total_duration > 1x", "total_duration > 1.2.3s", "total_duration > h"):
        with pytest.raises(FilterError, match="is not 90, 90s"):
            found(core, where)
    for number in ("1_000", "0x10", "1_0.5", "-1_000e3", "0b1"):
        with pytest.raises(FilterError, match="decimal digits"):
            found(core, f"params.x < {number}")
    assert found(core, 'params.text = "1_000"') == found(core, "params.day > 2026-01-01") == [run]
    assert found(core, "params.x = 1.6e1") == [run]


def test_total_duration_is_the_time_of_a_run_from_its_submission_on(core: Core) -> None:
    waited = core.queue(parameters={}).id
    core.clock.advance(90)
    fresh = core.queue(parameters={}).id

    assert found(core, "total_duration >= 90s") == [waited]
    assert found(core, "", "-total_duration") == [waited, fresh]
    assert (values(core, waited, "total_duration", "duration"), values(core, fresh, "total_duration")) == (
        {"total_duration": 90.0},
        {"total_duration": 0.0},
    )


def test_a_run_is_found_sorted_and_grouped_by_its_note(core: Core) -> None:
    plain, bad, good = (core.queue(parameters={}).id for _ in range(3))
    mark(core, bad, note="Diverged: lr too large, 100%")
    mark(core, good, note="baseline of the paper")

    for where in (
        "note",
        "note ~ LR",
        'note ~ "100%"',
        'note = "Diverged: lr too large, 100%"',
        "not note ~ paper and note",
    ):
        assert bad in found(core, where), where
        assert plain not in found(core, where), where
    assert found(core, "not note") == [plain]
    assert found(core, 'note ~ "_00%"') == []
    assert found(core, "note != x") == [bad, good]
    assert found(core, "", "note") == [bad, good, plain]
    assert found(core, "", "-note") == [good, bad, plain]
    assert (values(core, good, "note"), values(core, plain, "note")) == ({"note": "baseline of the paper"}, {})
    mark(core, bad, note="")
    assert found(core, "note") == [good]


def test_runs_without_a_note_are_not_read_for_those_that_have_one(core: Core) -> None:
    seed_runs(core, 2_000)
    mark(core, found(core, limit=1)[0], note="keep")
    core.write(lambda session: session.execute(text("ANALYZE")))

    def plan(session: Session) -> str:
        query = run_sets.with_columns(core.project_id, run_sets.HAS_NOTE)
        written = query.compile(session.get_bind(), compile_kwargs={"literal_binds": True})
        explain = "EXPLAIN" if core.database.url.startswith("postgresql") else "EXPLAIN QUERY PLAN"
        return str(session.execute(text(f"{explain} {written}")).all())

    assert "ix_run_note" in core.read(plan)


@pytest.mark.parametrize("column", RUN_COLUMNS)
def test_the_groups_of_each_column_of_a_run_lead_to_their_runs(core: Core, column: str) -> None:
    dice = random.Random(11)
    for place in range(12):
        run = core.queue(parameters={}, priority=place % 3).id
        core.clock.advance(dice.random() * 1e4)
        if place % 3 == 0:
            core.cancel(run)
        if place % 4 == 0:
            mark(core, run, starred=True)

    answer = core.read(lambda session: RunList(session, query(core)).groups(column, 20))

    assert sum(group.runs for group in answer.items) + answer.others == 12
    for group in answer.items:
        assert count(core, group.where) == group.runs, group.where


def test_a_duration_that_is_shown_finds_its_run(core: Core) -> None:
    """68560.899912 s times a million is not a whole number of microseconds in float64."""
    run = core.queue(parameters={}).id
    core.clock.micros += 68_560_899_912

    assert found(core, f"total_duration = {values(core, run, 'total_duration')['total_duration']}") == [run]
