"""Why a run waits, in every waiting state; and that doing what is suggested starts it."""

import random
from typing import Any

import pytest

from drumline.contracts import api
from drumline.contracts.reasons import EndReason
from drumline.contracts.states import RunState
from drumline_server.services import fleet
from support.core import GANG, SUSPECT_S, Core, Member, Worker
from support.statements import statements


def why(core: Core, run: api.Run) -> api.Why:
    reason = core.run(run.id).why
    assert reason is not None
    return reason


def beat_all(workers: list[Worker]) -> None:
    for worker in workers:
        worker.beat()


def finish(core: Core, run_ids: tuple[str, ...]) -> None:
    """Ends those runs, whose members nobody has claimed: their devices are free at once."""
    for run_id in run_ids:
        core.cancel(run_id)


def test_busy_run_is_told_the_largest_count_that_would_start_and_who_must_end(core: Core) -> None:
    core.add_worker(devices=8)
    holder = core.submit(resources={"replicas": 5})
    core.schedule()
    run = core.submit(resources={"replicas": 6})
    core.schedule()

    reason = why(core, run)

    assert (reason.rule, reason.position) == ("devices_busy", 1)
    assert [(each.kind, each.replicas, each.runs) for each in reason.suggestions] == [
        ("replicas", 3, ()),
        ("finish", None, (holder.id,)),
    ]


def test_run_of_a_full_platform_is_told_of_another_that_has_room(core: Core) -> None:
    core.add_worker(devices=2)
    core.add_worker("beta", devices=2, platform="gpu")
    core.submit(resources={"replicas": 2, "platform": "gpu"})
    core.schedule()
    run = core.submit(resources={"replicas": 2, "platform": "gpu"})

    assert "cpu" in {each.platform for each in why(core, run).suggestions}


@pytest.mark.parametrize("seed", [5, 10, 18, 24, 33, 48, 58, 62])  # between them suggest every kind
def test_doing_what_is_suggested_starts_the_run(core: Core, seed: int) -> None:
    """Random fleets and queues; each suggestion is followed on a fleet of its own, by cancelling and submitting."""
    kinds = [each.kind for each in _suggestions(_scene(core, seed, "probe"))]
    assert kinds, "nothing is suggested, so nothing would be tried"
    for number, kind in enumerate(kinds):
        scene = _scene(core, seed, f"take-{number}")
        suggestion = next(each for each in _suggestions(scene) if each.kind == kind)
        _follow(core, scene[0], scene[1], suggestion)


Scene = tuple[str, api.Run, Core]


def _scene(core: Core, seed: int, name: str) -> Scene:
    """A project of its own with hosts, runs that hold devices, others that wait, and one that waits last."""
    luck = random.Random(seed)
    project = core.add_project(name)
    for number in range(luck.randint(1, 3)):
        platform = luck.choice(("cpu", "gpu"))
        core.add_worker(f"h{number}", devices=luck.randint(2, 6), platform=platform, project_id=project)
    for _ in range(luck.randint(2, 6)):
        core.clock.advance(0.001)
        core.submit(project_id=project, wait_for_devices=True, **_wish(luck))
    core.schedule()
    core.clock.advance(0.001)
    wish = _wish(luck)
    wish["resources"]["replicas"] += 3
    return project, core.submit(project_id=project, wait_for_devices=True, **wish), core


def _wish(luck: random.Random) -> dict[str, Any]:
    resources = {
        "replicas": luck.randint(1, 4),
        "platform": luck.choice(("any", "cpu", "gpu")),
        "spread": luck.choice(("pack", "balance", "one_host")),
    }
    return {"job": GANG, "resources": resources, "limits": {"run_s": luck.choice((None, 60, 3600))}}


def _suggestions(scene: Scene) -> tuple[api.Suggestion, ...]:
    project, run, core = scene
    reason = core.run(run.id, project).why
    return reason.suggestions if reason is not None else ()


def _follow(core: Core, project: str, run: api.Run, suggestion: api.Suggestion) -> None:
    waiting = run.id
    if suggestion.kind == "finish":
        _end(core, project, suggestion.runs)
    else:
        _end(core, project, (run.id,))
        resources = {**run.resources.model_dump()}
        if suggestion.replicas is not None:
            resources["replicas"] = suggestion.replicas
        if suggestion.platform is not None:
            resources["platform"] = suggestion.platform
        waiting = core.submit(
            project_id=project, wait_for_devices=True, job=GANG, resources=resources, limits=run.limits.model_dump()
        ).id
    core.schedule()
    assert core.run(waiting, project).state is RunState.PLACED


def _end(core: Core, project: str, run_ids: tuple[str, ...]) -> None:
    theirs, core.project_id = core.project_id, project
    finish(core, run_ids)
    core.project_id = theirs


def test_start_is_foretold_from_the_steps_left_and_from_nothing_where_nothing_is_known(core: Core) -> None:
    worker = core.add_worker(devices=2)
    core.submit(resources={"replicas": 2})
    core.schedule()
    member = worker.take().start()
    run = core.submit(resources={"replicas": 2})
    assert why(core, run).starts is None

    member.send(member.event("progress", step=10, total_steps=110, steps_per_s=10.0))

    starts = why(core, run).starts
    assert starts is not None
    assert starts.at is not None
    assert "steps left" in starts.basis
    assert (starts.at.timestamp() * 1e6 - core.clock.now()) / 1e6 == pytest.approx(10, abs=1)


def test_expected_start_that_has_passed_is_told_as_overdue_and_never_as_a_time(core: Core) -> None:
    worker = core.add_worker(devices=2)
    core.submit(resources={"replicas": 2})
    core.schedule()
    member = worker.take().start()
    run = core.submit(resources={"replicas": 2})
    member.send(member.event("progress", step=10, total_steps=110, steps_per_s=10.0))

    core.clock.advance(10 + 180)
    worker.beat()

    starts = why(core, run).starts
    assert starts is not None
    assert starts.at is None
    assert starts.overdue_s == pytest.approx(180, abs=1)
    assert "steps left" in starts.basis


def test_time_limit_that_has_passed_is_no_start_in_the_past_either(core: Core) -> None:
    worker = core.add_worker(devices=2)
    core.submit(resources={"replicas": 2}, limits={"run_s": 60})
    core.schedule()
    worker.take().start()
    run = core.submit(resources={"replicas": 2})

    core.clock.advance(65)
    worker.beat()

    starts = why(core, run).starts
    assert starts is not None
    assert starts.at is None
    assert starts.overdue_s == pytest.approx(5, abs=1)


def test_placed_run_says_whose_worker_has_not_taken_it(core: Core) -> None:
    workers = [core.add_worker(name, devices=2) for name in ("alpha", "beta")]
    run = core.submit(job=GANG, resources={"replicas": 4})
    core.schedule()
    workers[0].take()

    reason = why(core, run)

    assert (reason.rule, reason.evidence) == ("claiming", {"missing": ["beta"], "members": 2})


def test_stopping_run_says_for_whom_it_waits_and_how_long(core: Core) -> None:
    worker = core.add_worker()
    run = core.submit()
    core.schedule()
    worker.take().start()
    core.cancel(run.id, grace_s=7)

    reason = why(core, run)

    assert (reason.rule, reason.evidence["hosts"], reason.evidence["grace_s"]) == ("stopping", ["alpha"], 7)


def test_finishing_run_says_whose_records_are_missing(core: Core) -> None:
    run, member = _running(core)
    member.end(EndReason.COMPLETED, last_seq=member.seq + 3)

    reason = why(core, run)

    assert (reason.rule, reason.evidence) == ("finishing", {"missing_records": {"alpha": 3}})


def test_running_run_waits_for_nothing(core: Core) -> None:
    run, _ = _running(core)

    assert core.run(run.id).why is None


def test_list_names_the_rule_that_the_run_itself_names(core: Core) -> None:
    seen = {None, *agreed(core, core.submit(wait_for_devices=True))}
    alpha, beta = core.add_worker("alpha", devices=2), core.add_worker("beta", devices=2)
    seen |= agreed(core, core.submit(resources={"replicas": 2, "platform": "gpu"}, wait_for_devices=True))
    seen |= agreed(core, core.submit(resources={"replicas": 20}, wait_for_devices=True))
    seen |= agreed(core, core.submit(resources={"replicas": 2}, priority=9))
    core.schedule()
    seen |= agreed(core)
    first = (alpha if alpha.beat().assigned else beta).take().start()
    first.send(first.event("checkpoint", step=10, path="f1/step_10", size_bytes=10, manifest="sha256:10"))
    first.end(EndReason.KILLED, signal=9, exit_code=None)
    seen |= agreed(core)
    core.submit(resources={"replicas": 2}, priority=9)
    core.submit(resources={"replicas": 2}, priority=9)
    core.schedule()
    core.clock.advance(6)
    beat_all([alpha, beta])
    core.reap()
    seen |= agreed(core)
    holders = [worker.take().start() for worker in (alpha, beta)]
    core.cancel(holders[0].claimed.run)
    holders[1].end(EndReason.COMPLETED, last_seq=holders[1].seq + 3)
    seen |= agreed(core, core.submit(resources={"replicas": 2}))
    for worker in (alpha, beta):
        drain(worker)
    seen |= agreed(core)

    assert seen >= {
        None,
        "no_hosts",
        "no_such_platform",
        "too_few_devices",
        "starting",
        "behind_others",
        "claiming",
        "retry_backoff",
        "devices_busy",
        "checkpoint_host",
        "stopping",
        "finishing",
        "host_draining",
    }


def drain(worker: Worker) -> None:
    """As an operator does."""
    core = worker.core
    core.write(lambda session: fleet.drain_host(session, core.order(worker.host_id), suspect_s=SUSPECT_S))


def agreed(core: Core, *_: api.Run) -> set[str | None]:
    """The rules of all runs, of which the list and each run's own `why` must say the same."""
    shown = core.runs().items
    own = {run.id: core.run(run.id).why for run in shown}
    named = {run.id: None if run.wait is None else run.wait.rule for run in shown}
    assert named == {run_id: None if reason is None else reason.rule for run_id, reason in own.items()}
    return {*named.values()}


def test_rules_of_a_page_cost_as_many_statements_as_those_of_one_run(core: Core) -> None:
    worker = core.add_worker(devices=1)
    core.submit(resources={"replicas": 1}, priority=9)
    core.schedule()
    first = worker.take().start()
    first.send(first.event("checkpoint", step=10, path="f1/step_10", size_bytes=10, manifest="sha256:10"))
    first.end()
    for _ in range(30):
        core.submit(resources={"replicas": 1}, resume_from=first.claimed.run)
    core.schedule()

    with statements() as for_one:
        assert core.runs(limit=1).items[0].wait is not None
    with statements() as for_all:
        waits = [run.wait.rule for run in core.runs(limit=40).items if run.wait is not None]

    assert waits == ["checkpoint_host"] * 29 + ["claiming"]
    assert len(for_all) == len(for_one) + 1  # and the one that is placed


def _running(core: Core) -> tuple[api.Run, Member]:
    worker = core.add_worker()
    run = core.submit()
    core.schedule()
    return run, worker.take().start()
