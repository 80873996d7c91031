"""Devices that nobody proved free (P10), hosts on which run after run fails and runs that take hosts down (P14)."""

from typing import Any

import pytest
from sqlalchemy import select

from drumline.contracts import api
from drumline.contracts.problems import ProblemCode
from drumline.contracts.reasons import EndReason
from drumline.contracts.states import DeviceState, RunState
from drumline.contracts.worker_api import DeviceCheck, DeviceCheckReport, MemberHeartbeat
from drumline_server.base.errors import DrumlineError, NotFoundError
from drumline_server.services import fleet
from drumline_server.storage.models import Audit
from support.core import SUSPECT_S, Core, Member, Worker


def running(core: Core, worker: Worker, **changes: Any) -> tuple[str, Member]:
    """A run that runs on that worker, the only one with room."""
    run = core.submit(**{"resources": {"replicas": worker.device_count}, **changes})
    core.schedule()
    return run.id, worker.take().start()


def lost(core: Core) -> tuple[str, Member]:
    """A run whose host fell silent for longer than the lease; the host is back since."""
    run_id, member = running(core, core.add_worker(devices=2))
    core.clock.advance(121)
    core.reap()
    return run_id, member


def found(request: DeviceCheck, **changes: object) -> DeviceCheckReport:
    """A probe that found nothing wrong, with changes."""
    return DeviceCheckReport.model_validate(
        {"device": request.device, "fence": request.fence, "usable": True, **changes}
    )


def again(core: Core, run_id: str, *workers: Worker) -> None:
    """Waits until the backoff of the run is over, and schedules."""
    while core.run(run_id).state is RunState.RETRY_WAIT:
        core.clock.advance(1)
        for worker in workers:
            worker.beat()
        core.reap()
    core.schedule()


def why(core: Core, run_id: str) -> api.Why:
    found = core.run(run_id).why
    assert found is not None
    return found


# devices


def test_quarantined_device_says_why_since_when_and_for_which_run(core: Core) -> None:
    run_id, member = lost(core)

    device = core.shown_devices()[0]

    assert device.state is DeviceState.QUARANTINED
    assert device.quarantine is not None
    assert (device.quarantine.reason, device.quarantine.run, device.quarantine.member) == (
        "lease_ran_out",
        run_id,
        member.id,
    )
    assert device.quarantine.attempt == core.attempts(run_id)[0].id
    assert "fell silent" in device.quarantine.sentence


def test_end_without_proof_is_told_apart_from_silence(core: Core) -> None:
    _, member = running(core, core.add_worker(devices=1))
    member.end(EndReason.SHIM_KILLED, devices_released=False)

    quarantine = core.shown_devices()[0].quarantine
    assert quarantine is not None
    assert quarantine.reason == "death_not_proven"


def test_worker_is_asked_to_probe_and_its_clean_report_frees_the_device(core: Core) -> None:
    _, member = lost(core)

    first, second = member.worker.beat().probes
    assert (first.index, second.index, first.member) == (0, 1, member.id)
    member.worker.report(found(first))

    assert core.device_states() == [DeviceState.FREE, DeviceState.QUARANTINED]
    assert core.shown_devices()[0].quarantine is None
    assert [probe.device for probe in member.worker.beat().probes] == [second.device]


@pytest.mark.parametrize(
    ("finding", "told"),
    [
        ({"survivors": (41, 42)}, "Processes of its last holder survive SIGKILL: 41, 42."),
        ({"usable": False, "message": "CUDA_ERROR_ECC"}, "CUDA_ERROR_ECC"),
        ({"usable": False}, "A program on it did not give the right answer."),
    ],
)
def test_probe_that_finds_something_leaves_the_device_quarantined_with_the_evidence(
    core: Core, finding: dict[str, object], told: str
) -> None:
    _, member = lost(core)
    request = member.worker.beat().probes[0]
    member.worker.report(found(request, **finding))

    quarantine = core.shown_devices()[0].quarantine
    assert quarantine is not None
    assert quarantine.probe_message == told
    assert quarantine.probed_at is not None
    assert request.device not in [probe.device for probe in member.worker.beat().probes]
    core.clock.advance(60)
    assert request.device in [probe.device for probe in member.worker.beat().probes]


def test_report_of_a_probe_for_an_earlier_holder_frees_nothing(core: Core) -> None:
    _, member = lost(core)
    request = member.worker.beat().probes[0]

    member.worker.report(found(request, fence=request.fence + 1))

    assert core.device_states() == [DeviceState.QUARANTINED] * 2


def test_report_of_an_older_incarnation_is_refused(core: Core) -> None:
    _, member = lost(core)
    request = member.worker.beat().probes[0]
    Worker(core, member.worker.host_id, "alpha", 2, "cpu").register()

    with pytest.raises(DrumlineError) as refused:
        member.worker.report(found(request))

    assert refused.value.code is ProblemCode.FENCED
    assert core.device_states() == [DeviceState.QUARANTINED] * 2


def test_operator_frees_a_device_and_the_act_is_audited(core: Core) -> None:
    lost(core)
    device = core.shown_devices()[0]

    for _ in range(2):
        shown = core.write(lambda session: fleet.release_device(session, core.order(device.id)))
        assert (shown.state, shown.quarantine) == (DeviceState.FREE, None)

    assert core.device_states() == [DeviceState.FREE, DeviceState.QUARANTINED]
    acts = core.read(
        lambda session: session.scalars(select(Audit.target).where(Audit.action == "device.release")).all()
    )
    assert acts == [device.id]


def test_device_that_a_run_holds_cannot_be_released(core: Core) -> None:
    running(core, core.add_worker(devices=1))
    device = core.shown_devices()[0]

    with pytest.raises(DrumlineError) as refused:
        core.write(lambda session: fleet.release_device(session, core.order(device.id)))

    assert refused.value.code is ProblemCode.CONFLICT
    assert core.device_states() == [DeviceState.HELD]


def test_device_of_another_project_does_not_exist(core: Core) -> None:
    core.add_worker("theirs", project_id=core.add_project("theirs"))
    theirs = core.devices()[0].id

    with pytest.raises(NotFoundError):
        core.write(lambda session: fleet.release_device(session, core.order(theirs)))


def test_run_that_waits_for_quarantined_devices_says_so(core: Core) -> None:
    _, member = lost(core)
    member.worker.beat()
    waiting = core.submit(resources={"replicas": 2})

    assert why(core, waiting.id).rule == "devices_quarantined"
    assert "hosts release alpha --device" in why(core, waiting.id).remedy


# hosts


def fail_on(
    core: Core, worker: Worker, times: int, *, apart_s: float = 10, reason: EndReason = EndReason.KILLED
) -> None:
    """So many different runs fail there, one after the other, and are not tried again."""
    for _ in range(times):
        _, member = running(core, worker, retries={"infrastructure": 0})
        member.end(reason)
        core.clock.advance(apart_s)
        worker.beat()
    core.reap()


def test_host_on_which_three_runs_fail_is_quarantined_with_the_evidence(core: Core) -> None:
    bad = core.add_worker("bad", devices=1)
    fail_on(core, bad, 2)
    good = core.add_worker("good", devices=2)
    assert core.host("bad").trouble is None
    fail_on(core, bad, 1)

    host = core.host("bad")
    assert host.state == "quarantined"
    assert host.trouble is not None
    assert host.trouble.kind == "quarantined"
    assert [failure.reason for failure in host.trouble.failures] == [EndReason.KILLED] * 3
    (failed, *_) = core.runs(states=(RunState.FAILED,)).items
    assert [event.body["state"] for event in core.events(failed.id) if event.kind == "host"] == ["quarantined"]
    good.beat()
    bad.beat()
    run = core.submit()
    core.schedule()
    assert core.run(run.id).hosts == ("good",)


def test_only_host_of_its_kind_is_flagged_and_still_takes_runs(core: Core) -> None:
    worker = core.add_worker("alone", devices=1)
    core.add_worker("other kind", devices=1, platform="gpu")
    for _ in range(3):
        _, member = running(core, worker, retries={"infrastructure": 0}, resources={"replicas": 1, "platform": "cpu"})
        member.end(EndReason.KILLED)
        core.clock.advance(10)
        worker.beat()
    core.reap()

    host = core.host("alone")
    assert host.state == "live"
    assert host.trouble is not None
    assert host.trouble.kind == "flagged"
    run = core.submit(resources={"replicas": 1, "platform": "cpu"})
    assert run.id in core.schedule()


@pytest.mark.parametrize(
    ("times", "apart_s", "reason"),
    [(2, 10, EndReason.KILLED), (4, 250, EndReason.KILLED), (4, 10, EndReason.PROGRAM_ERROR)],
    ids=["two runs", "too far apart", "the programs' own fault"],
)
def test_host_stays_in_service_otherwise(core: Core, times: int, apart_s: float, reason: EndReason) -> None:
    worker = core.add_worker("bad", devices=1)
    fail_on(core, worker, times, apart_s=apart_s, reason=reason)
    core.add_worker("good", devices=1)
    core.reap()

    assert core.host("bad").trouble is None


def test_one_restart_that_ends_three_runs_is_one_incident(core: Core) -> None:
    worker = core.add_worker("bad", devices=3)
    core.add_worker("good", devices=1, platform="gpu")
    for _ in range(3):
        core.submit(resources={"replicas": 1, "platform": "cpu"})
    core.schedule()
    for notice in worker.beat().assigned:
        Member(worker, worker.claim(notice)).start()
    worker.register()
    core.reap()

    assert core.host("bad").trouble is None


def test_operator_releases_a_host_and_what_failed_before_counts_no_more(core: Core) -> None:
    worker = core.add_worker("bad", devices=1)
    fail_on(core, worker, 3)
    core.add_worker("good", devices=1)
    core.reap()
    host = core.host("bad")
    assert host.state == "quarantined"

    for _ in range(2):
        released = core.write(lambda session: fleet.release_host(session, core.order(host.id), suspect_s=SUSPECT_S))
        assert (released.state, released.trouble) == ("live", None)
    core.reap()

    assert core.host("bad").trouble is None


def test_run_that_waits_for_a_quarantined_host_says_so_and_its_remedy_starts_it(core: Core) -> None:
    worker = core.add_worker("bad", devices=2)
    fail_on(core, worker, 3)
    core.add_worker("good", devices=1)
    core.reap()
    worker.beat()
    run = core.submit(resources={"replicas": 2})
    assert core.schedule() == []

    assert why(core, run.id).rule == "host_quarantined"
    assert "drumline hosts release bad" in why(core, run.id).remedy
    core.write(lambda session: fleet.release_host(session, core.order(worker.host_id), suspect_s=SUSPECT_S))

    assert core.schedule() == [run.id]


# runs


def test_run_that_loses_two_hosts_is_poison(core: Core) -> None:
    alpha = core.add_worker("alpha", devices=1)
    run_id, _ = running(core, alpha)
    beta = core.add_worker("beta", devices=1)
    alpha.register()
    again(core, run_id, alpha, beta)
    beta.take().start()
    assert core.run(run_id).hosts == ("beta",), "an infrastructure retry prefers another host"
    beta.register()

    run = core.run(run_id)
    assert run.state is RunState.FAILED
    assert run.reason is not None
    assert run.reason.code is EndReason.POISON
    assert run.reason.message == "Lost alpha (attempt 1, HOST_REBOOTED), beta (attempt 2, HOST_REBOOTED)."


def test_run_that_takes_the_only_host_down_three_times_is_poison(core: Core) -> None:
    worker = core.add_worker(devices=1)
    run_id, member = running(core, worker)
    for _ in range(2):
        member.end(EndReason.SHIM_KILLED)
        assert core.run(run_id).state is RunState.RETRY_WAIT
        again(core, run_id, worker)
        member = worker.take().start()
    member.end(EndReason.SHIM_KILLED)

    reason = core.run(run_id).reason
    assert reason is not None
    assert reason.code is EndReason.POISON
    assert core.run(run_id).attempts == 3


def test_run_that_fails_on_two_hosts_without_taking_them_down_is_no_poison(core: Core) -> None:
    alpha, beta = core.add_worker("alpha", devices=1), core.add_worker("beta", devices=1)
    run = core.submit()
    core.schedule()
    alpha.take().start().end(EndReason.OUT_OF_MEMORY)
    again(core, run.id, alpha, beta)
    beta.take().start().end(EndReason.OUT_OF_MEMORY)

    assert core.run(run.id).state is RunState.RETRY_WAIT


# draining by an operator


def test_drained_host_takes_no_runs_and_tells_its_worker_until_it_is_undrained(core: Core) -> None:
    worker = core.add_worker(devices=1)
    core.write(lambda session: fleet.drain_host(session, core.order(worker.host_id), suspect_s=SUSPECT_S))
    run = core.submit()

    assert worker.beat().drain
    assert core.schedule() == []
    assert (core.host("alpha").state, core.host("alpha").drain_requested) == ("draining", True)
    assert why(core, run.id).rule == "host_draining"
    worker.register()
    assert core.host("alpha").state == "draining", "a restart of the worker does not undo it"

    core.write(lambda session: fleet.undrain_host(session, core.order(worker.host_id), suspect_s=SUSPECT_S))
    assert not worker.beat().drain
    assert core.schedule() == [run.id]


def test_preempted_run_goes_on_elsewhere_and_nothing_is_counted_as_a_failure(core: Core) -> None:
    alpha = core.add_worker("alpha", devices=1)
    run_id, member = running(core, alpha, retries={"infrastructure": 0})
    beta = core.add_worker("beta", devices=1)
    core.write(lambda session: fleet.drain_host(session, core.order(alpha.host_id), suspect_s=SUSPECT_S))
    alpha.beat(MemberHeartbeat(member=member.id, fence=1))
    member.end(EndReason.PREEMPTED)
    assert core.attempts(run_id)[0].state == "PREEMPTED"
    assert core.run(run_id).state is RunState.RETRY_WAIT
    again(core, run_id, alpha, beta)
    beta.take().start().end()

    run = core.run(run_id)
    assert (run.state, run.attempts, run.hosts) == (RunState.SUCCEEDED, 2, ("beta",))
