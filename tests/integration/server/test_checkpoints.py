"""Checkpoints on the server: registered under the fence, kept by policy, offered to those who can read them."""

import pytest
from sqlalchemy.orm import Session

from drumline.contracts.base import new_id
from drumline.contracts.reasons import EndReason
from drumline.contracts.states import CheckpointState
from drumline_server.base.errors import FencedError, InvalidRequestError
from drumline_server.lifecycle import checkpoints
from drumline_server.services import fleet
from drumline_server.storage.models import Host
from support.checkpoints import DAY_S, expired, listed, offered, rerun, save, started
from support.core import SUSPECT_S, TAKEOVER_S, Core, Member, Worker


def started_whole(core: Core, worker: Worker) -> Member:
    """A run of eight replicas that must not be split over hosts."""
    core.submit(resources={"replicas": 8, "spread": "one_host"})
    core.schedule()
    return worker.take().start()


def states(core: Core, run_id: str) -> dict[tuple[int, int], str]:
    return {(row.fence, row.step): str(row.state) for row in listed(core, run_id).items}


def fail(core: Core, member: Member, *others: Worker) -> None:
    """Ends the attempt for a reason that is retried, and lets the backoff pass."""
    member.end(EndReason.KILLED, signal=9, exit_code=None)
    core.clock.advance(46)
    for worker in (member.worker, *others):
        worker.beat()
    core.reap()
    core.schedule()


def test_retry_is_offered_the_newest_checkpoint_first_and_then_those_before(core: Core) -> None:
    worker = core.add_worker()
    first = started(core, worker)
    assert first.claimed.resume == ()
    save(first, 10, 20)
    fail(core, first)

    second = worker.take().start()
    assert offered(second) == [(1, 20), (1, 10)]
    assert [point.manifest for point in second.claimed.resume] == ["sha256:20", "sha256:10"]
    save(second, 15)
    fail(core, second)
    assert offered(worker.take()) == [(2, 15), (1, 20)]


def test_policy_keeps_the_newest_and_every_kth(core: Core) -> None:
    member = started(core, core.add_worker(), job={"checkpoint": {"keep": 2, "keep_every_steps": 20}})
    save(member, 10, 20, 30, 40, 50)
    kept = {key for key, state in states(core, member.claimed.run).items() if state == CheckpointState.KEPT}
    assert kept == {(1, 50), (1, 40), (1, 20)}


def test_a_writer_with_a_lower_fence_cannot_register(core: Core) -> None:
    lost, other = core.add_worker("alpha"), core.add_worker("beta")
    core.submit(resources={"replicas": 1})
    core.schedule()
    worker = next(host for host in (lost, other) if host.beat().assigned)
    zombie = worker.take().start()
    save(zombie, 10)
    core.clock.advance(TAKEOVER_S + 1)
    (other if worker is lost else lost).beat()
    core.reap()
    core.clock.advance(10)
    (other if worker is lost else lost).beat()
    core.reap()
    core.schedule()
    worker.register([zombie.alive()])
    with pytest.raises(FencedError):
        save(zombie, 20)
    assert states(core, zombie.claimed.run) == {(1, 10): "KEPT"}


def test_what_an_attempt_found_damaged_is_not_offered_again(core: Core) -> None:
    worker = core.add_worker()
    first = started(core, worker)
    save(first, 10, 20)
    fail(core, first)
    second = worker.take().start()
    newest, before = second.claimed.resume
    restored = second.event("restored", checkpoint=before.checkpoint, step=10, damaged=(newest.checkpoint,))
    second.send(restored)

    attempt, _ = core.attempts(second.claimed.run)
    assert (attempt.resumed_from, attempt.resumed_step) == (before.checkpoint, 10)
    assert states(core, second.claimed.run) == {(1, 20): "DAMAGED", (1, 10): "KEPT"}
    fail(core, second)
    assert offered(worker.take()) == [(1, 10)]


def test_retry_waits_for_the_host_that_has_the_checkpoints_while_it_lives(core: Core) -> None:
    alpha, beta = core.add_worker("alpha", devices=1), core.add_worker("beta", devices=1)
    core.submit(resources={"replicas": 1})
    core.schedule()
    home = next(worker for worker in (alpha, beta) if worker.beat().assigned)
    first = home.take().start()
    save(first, 10)
    away = alpha if home is beta else beta
    core.submit(resources={"replicas": 1}, priority=5)
    core.schedule()
    elsewhere = away.take().start()
    core.submit(resources={"replicas": 1}, priority=5)
    fail(core, first, away)  # the more urgent run takes the host
    elsewhere.end()
    core.schedule()
    assert away.beat().assigned == ()

    run = core.run(first.claimed.run)
    assert run.why is not None
    assert (run.why.rule, run.why.evidence["hosts"]) == ("checkpoint_host", [home.name])
    home.take().start().end()
    core.schedule()
    assert offered(home.take()) == [(1, 10)]


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("state", ["draining", "quarantined"])
def test_run_tied_to_a_host_out_of_service_says_so_and_each_remedy_starts_it(
    core: Core, state: str, resumed: bool
) -> None:
    home = core.add_worker("home", devices=1)
    first = started(core, home)
    save(first, 10)
    if resumed:
        first.end()
        waiting = core.submit(resources={"replicas": 1}, resume_from=first.claimed.run)
    else:
        first.end(EndReason.PREEMPTED)
        waiting = core.run(first.claimed.run)
    put_out_of_service(core, home, state)
    away = core.add_worker("away", devices=1)
    core.clock.advance(6)
    core.reap()
    away.beat()
    assert core.schedule() == []

    reason = core.run(waiting.id).why

    assert reason is not None
    assert (reason.rule, reason.evidence["hosts"], reason.evidence["host"]) == ("checkpoint_host", ["home"], "home")
    assert {"draining": "is being drained", "quarantined": "is quarantined"}[state] in reason.sentence
    assert "step 10" in reason.sentence
    assert {"draining": "hosts undrain home", "quarantined": "hosts release home"}[state] in reason.remedy
    assert f"`drumline rerun {waiting.id}{' --from-start' if resumed else ''}`" in reason.remedy
    fresh = core.submit(resources={"replicas": 1}).id if resumed else rerun(core, waiting.id).id
    assert core.schedule() == [fresh]
    put_into_service(core, home, state)
    home.beat()
    assert core.schedule() == [waiting.id]


def put_out_of_service(core: Core, worker: Worker, state: str) -> None:
    def quarantine(session: Session) -> None:
        session.get_one(Host, worker.host_id).quarantined_at = core.clock.now()

    if state == "quarantined":
        core.write(quarantine)
        return
    core.write(lambda session: fleet.drain_host(session, core.order(worker.host_id), suspect_s=SUSPECT_S))


def put_into_service(core: Core, worker: Worker, state: str) -> None:
    act = fleet.release_host if state == "quarantined" else fleet.undrain_host
    core.write(lambda session: act(session, core.order(worker.host_id), suspect_s=SUSPECT_S))


def test_work_on_a_lost_host_is_named_and_the_run_goes_on_elsewhere(core: Core) -> None:
    alpha, beta = core.add_worker("alpha"), core.add_worker("beta")
    core.submit(resources={"replicas": 1})
    core.schedule()
    home = next(worker for worker in (alpha, beta) if worker.beat().assigned)
    away = alpha if home is beta else beta
    first = home.take().start()
    save(first, 10)
    core.clock.advance(TAKEOVER_S + 1)
    away.beat()
    core.reap()

    run = core.run(first.claimed.run)
    assert run.why is not None
    assert f"Its checkpoint of step 10 was on {home.name}, which is lost: it starts over." in run.why.sentence
    core.clock.advance(10)
    away.beat()
    core.reap()
    core.schedule()
    assert away.take().claimed.resume == ()


def test_hosts_that_share_a_volume_go_on_with_each_others_runs(core: Core) -> None:
    alpha, beta = core.add_worker("alpha"), core.add_worker("beta")
    alpha.register(checkpoint_store="vol_x")
    beta.register(checkpoint_store="vol_x")
    core.submit(resources={"replicas": 1})
    core.schedule()
    home = next(worker for worker in (alpha, beta) if worker.beat().assigned)
    first = home.take().start()
    save(first, 10)
    assert listed(core, first.claimed.run).items[0].shared
    away = alpha if home is beta else beta
    fail(core, first, away)
    assert offered(away.take()) == [(1, 10)]  # a retry goes to another host if it can


def test_run_that_fits_only_on_all_hosts_of_its_volume_together_goes_on_elsewhere(core: Core) -> None:
    """A gang that must stay on one host has room on a host, never on a sum."""
    alpha = core.add_worker("alpha")
    alpha.register(checkpoint_store="vol_x")
    first = started_whole(core, alpha)
    save(first, 10)
    others = [core.add_worker(name, devices=4) for name in ("beta", "gamma")]
    for worker in others:
        worker.register(checkpoint_store="vol_x")
    others.append(core.add_worker("delta"))
    for seconds in (TAKEOVER_S + 1, 10):
        core.clock.advance(seconds)
        for worker in others:
            worker.beat()
        core.reap()

    assert core.schedule() == [first.claimed.run]
    assert others[-1].take().claimed.resume == ()


def test_what_a_run_loses_that_is_submitted_anew_is_said(core: Core) -> None:
    home = core.add_worker("home", devices=2)
    first = started(core, home, resources={"replicas": 2})
    save(first, 10)
    first.end(EndReason.PREEMPTED)
    core.submit(resources={"replicas": 1}, priority=9)
    core.schedule()
    core.clock.advance(6)
    home.beat()
    core.reap()

    reason = core.run(first.claimed.run).why
    assert reason is not None
    (fewer,) = [each for each in reason.suggestions if each.kind == "replicas"]
    assert fewer.sentence.endswith("it would start now. It then does again what it has done up to step 10.")


def test_checkpoints_of_a_run_that_ended_long_ago_are_the_workers_to_delete(core: Core) -> None:
    worker = core.add_worker(devices=4)
    over, live = started(core, worker), started(core, worker)
    for member in (over, live):
        save(member, 10)
    over.end()
    both = (over.claimed.run, live.claimed.run, new_id("run"))

    core.clock.advance(29 * DAY_S)
    assert expired(core, worker, *both) == ()
    assert states(core, over.claimed.run) == {(1, 10): "KEPT"}
    core.clock.advance(2 * DAY_S)
    foreign = core.add_worker("beta", project_id=core.add_project("foreign"))
    assert expired(core, foreign, *both) == ()
    assert expired(core, worker, *both) == (over.claimed.run,)

    assert states(core, over.claimed.run) == {(1, 10): "DELETED"}
    with pytest.raises(InvalidRequestError, match="has no checkpoint to resume from"):
        core.submit(resources={"replicas": 1}, resume_from=over.claimed.run)


def test_checkpoints_that_a_live_run_goes_on_from_stay_until_it_ends(core: Core) -> None:
    worker = core.add_worker()
    source = started(core, worker)
    save(source, 10)
    source.end()
    user = core.submit(resources={"replicas": 1}, resume_from=source.claimed.run)
    core.clock.advance(31 * DAY_S)

    assert expired(core, worker, source.claimed.run) == ()
    core.schedule()
    assert offered(worker.take()) == [(1, 10)]
    core.cancel(user.id)
    worker.register()  # without the member: it is dead
    assert expired(core, worker, source.claimed.run) == (source.claimed.run,)


def test_a_host_gives_up_what_is_in_its_own_store_only(core: Core) -> None:
    alpha = core.add_worker("alpha")
    member = started(core, alpha)
    save(member, 10)
    member.end()
    core.clock.advance(31 * DAY_S)
    beta = core.add_worker("beta")

    assert expired(core, beta, member.claimed.run) == (member.claimed.run,)
    assert states(core, member.claimed.run) == {(1, 10): "KEPT"}


def test_rows_of_deleted_checkpoints_go_after_a_week_but_those_that_a_live_run_names(core: Core) -> None:
    worker = core.add_worker()
    source = started(core, worker)
    save(source, 10, 20)
    named = listed(core, source.claimed.run).items[1]
    core.submit(resources={"replicas": 1}, resume_from=named.id)
    save(source, 30, 40, 50)
    assert states(core, source.claimed.run)[1, 10] == "DELETED"

    core.clock.advance(8 * DAY_S)
    core.write(lambda session: checkpoints.forget_deleted(session, now=core.clock.now()))

    assert states(core, source.claimed.run) == {(1, 50): "KEPT", (1, 40): "KEPT", (1, 10): "DELETED"}


def test_same_step_saved_again_takes_the_place_of_the_first(core: Core) -> None:
    member = started(core, core.add_worker())
    save(member, 10)
    member.send(member.event("checkpoint", step=10, path="f1/step_10", size_bytes=11, manifest="sha256:new"))
    (only,) = listed(core, member.claimed.run).items
    assert (only.size_bytes, only.manifest) == (11, "sha256:new")


def test_checkpoints_page(core: Core) -> None:
    member = started(core, core.add_worker())
    save(member, *range(0, 50, 10))
    first = listed(core, member.claimed.run, limit=2)
    second = listed(core, member.claimed.run, limit=50, cursor=first.next)
    assert [row.step for row in (*first.items, *second.items)] == [40, 30, 20, 10, 0]
