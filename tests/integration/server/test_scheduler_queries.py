"""The scheduler reads a long queue by index: what it looks at does not grow with the number of waiting runs."""

import pytest

from drumline_server.scheduling.dispatch import schedule
from drumline_server.scheduling.placement import Snapshot
from drumline_server.scheduling.snapshot import GROUPS, HEAD_MAX, HEAD_MIN, QUEUE_MAX, projects_to_serve, take_snapshot
from support.backlog import queue_many
from support.core import TERMS, Core
from support.query_plans import read_plans, rows_read
from support.statements import statements

pytestmark = pytest.mark.both_databases

LONG = 6_000


def look(core: Core) -> Snapshot:
    return core.read(lambda session: take_snapshot(session, core.project_id, TERMS, now=core.clock.now()))


def test_snapshot_reads_a_long_queue_by_index_only(core: Core) -> None:
    core.add_worker()
    queue_many(core, LONG)

    plans = read_plans(core, lambda session: take_snapshot(session, core.project_id, TERMS, now=core.clock.now()))
    plans += read_plans(core, lambda session: projects_to_serve(session, silent_since=0))

    if core.database.url.startswith("sqlite"):
        scans = [
            line for plan in plans for line in plan.splitlines() if line.startswith(("SCAN run", "SCAN candidate"))
        ]
        assert scans == []
        assert [plan for plan in plans if "TEMP B-TREE FOR ORDER BY" in plan and "run" in plan] == []
    else:
        assert not any('"Seq Scan", "Parallel Aware": false, "Relation Name": "run"' in plan for plan in plans)
        assert max(rows_read(plan, "run") for plan in plans) <= 2 * HEAD_MAX


def test_snapshot_holds_the_first_of_the_queue_whatever_their_priority_and_shape(core: Core) -> None:
    ids = queue_many(core, LONG)

    queue = look(core).queue

    of_top_priority = [run_id for number, run_id in enumerate(ids) if (number // 4) % 5 == 4]
    assert [run.id for run in queue[:HEAD_MAX]] == of_top_priority[:HEAD_MAX]
    assert set(ids[:HEAD_MAX]) <= {run.id for run in queue}
    assert len(queue) <= QUEUE_MAX + HEAD_MAX


def test_group_that_cannot_start_hides_no_group_of_lower_priority(core: Core) -> None:
    """More runs of high priority wait for devices that nobody has than one look takes in."""
    queue_many(core, 2 * QUEUE_MAX, replicas=[16, 24, 32, 40, 48], priorities=1)
    for number in range(HEAD_MIN + 1):
        core.submit(wait_for_devices=True, priority=-1 - number % 2)
    core.add_worker()

    queue = look(core).queue

    assert len([run for run in queue if run.priority < 0]) == HEAD_MIN + 1
    assert len(schedule(core.database, TERMS, now=core.clock.now())) == 8


def test_round_with_no_free_device_reads_one_statement(core: Core) -> None:
    core.add_worker(devices=1)
    core.submit(resources={"replicas": 1})
    schedule(core.database, TERMS, now=core.clock.now())
    core.submit(resources={"replicas": 1})

    with statements() as sent:
        schedule(core.database, TERMS, now=core.clock.now())

    assert len([statement for statement, _ in sent if "SELECT" in statement]) == 1


def test_run_that_waited_long_enough_is_first_although_newer_ones_have_more_priority(core: Core) -> None:
    old = core.submit(wait_for_devices=True)
    core.clock.advance(60 * 10)
    queue_many(core, 500)

    assert look(core).queue[0].id == old.id


@pytest.mark.parametrize("count", [GROUPS + 40])
def test_groups_beyond_the_bound_are_left_out_but_not_the_oldest_runs(core: Core, count: int) -> None:
    runs = [core.submit(wait_for_devices=True, priority=number) for number in range(count)]

    queue = {run.id for run in look(core).queue}

    assert {run.id for run in runs} == queue


def test_run_behind_the_head_of_the_queue_is_told_its_place_without_a_look_at_the_queue(core: Core) -> None:
    core.add_worker(devices=8)
    ids = queue_many(core, 5 * HEAD_MAX, replicas=[1], priorities=1)

    def asked_for(place: int) -> bool:
        """Whether the run at that place of the queue was looked for among its head."""
        with statements() as sent:
            run = core.run(ids[place - 1])
        assert run.why is not None
        assert run.why.position == place
        return any("RECURSIVE" in statement for statement, _ in sent)

    assert asked_for(HEAD_MAX)
    assert not asked_for(HEAD_MAX + 1)
    assert not asked_for(len(ids))


def test_page_of_runs_behind_the_head_says_so_without_a_look_at_the_queue(core: Core) -> None:
    core.add_worker(devices=8)
    ids = queue_many(core, 2 * HEAD_MAX, replicas=[1], priorities=1)

    with statements() as sent:
        page = core.runs(limit=20, states=("QUEUED",))

    assert [run.id for run in page.items] == ids[:-21:-1]
    assert {run.wait.rule if run.wait else None for run in page.items} == {"behind_others"}
    assert not any("RECURSIVE" in statement for statement, _ in sent)
    why = core.run(ids[-1]).why
    assert why is not None
    assert why.rule == "behind_others"
    assert "so many runs like it are ahead" in why.sentence
    oldest = core.runs(limit=20, states=("QUEUED",), newest_first=False).items
    assert [run.wait.rule if run.wait else None for run in oldest] == ["starting"] * 8 + ["behind_others"] * 12
