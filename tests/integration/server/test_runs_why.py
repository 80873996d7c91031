"""Why a run waits, in every waiting state; and that doing what is suggested starts it."""

import random
from typing import Any

import pytest

from drumline.contracts import api
from drumline.contracts.reasons import EndReason
from drumline.contracts.states import RunState
from support.core import Core, Member, Worker


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
    return {"resources": resources, "limits": {"run_s": luck.choice((None, 60, 3600))}}


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
            project_id=project, wait_for_devices=True, resources=resources, limits=run.limits.model_dump()
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
    assert "steps left" in starts.basis
    assert (starts.at.timestamp() * 1e6 - core.clock.now()) / 1e6 == pytest.approx(10, abs=1)


def test_placed_run_says_whose_worker_has_not_taken_it(core: Core) -> None:
    workers = [core.add_worker(name, devices=2) for name in ("alpha", "beta")]
    run = core.submit(resources={"replicas": 4})
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


def _running(core: Core) -> tuple[api.Run, Member]:
    worker = core.add_worker()
    run = core.submit()
    core.schedule()
    return run, worker.take().start()
