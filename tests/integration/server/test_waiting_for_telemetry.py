"""What is lost with a host, and programs that are made to wait until their telemetry is taken."""

from typing import Any

import pytest

from drumline.contracts import api
from drumline.contracts.programs import MemberTick
from drumline.contracts.reasons import EndReason
from drumline.contracts.states import RunState
from drumline.contracts.worker_api import MemberHeartbeat
from drumline_server.telemetry import logs
from support.core import GANG, Core, Member, Worker

pytestmark = pytest.mark.both_databases


def _beat(member: Member, activity: str, **more: Any) -> MemberHeartbeat:  # Any: fields of the tick
    tick = {"activity": activity, "advances": 5, "idle_s": 0.0, "silent_s": 0.0, **more}
    return MemberHeartbeat(member=member.id, fence=member.claimed.fence, tick=MemberTick.model_validate(tick))


def _gaps(core: Core, run_id: str) -> tuple[api.Gap, ...]:
    return core.read(
        lambda session: logs.list_gaps(session, core.project_id, run_id, None, cursor=None, limit=50)
    ).items


def _logs(core: Core, run_id: str) -> api.Logs:
    wanted = logs.LogRange(None, None, 0, 10_000)
    return core.read(lambda session: logs.read_logs(session, core.project_id, run_id, wanted))


@pytest.fixture
def gang(core: Core) -> tuple[Member, Member]:
    """Two members on two hosts, whose program runs."""
    workers = [core.add_worker(name, devices=2) for name in ("alpha", "beta")]
    core.submit(job=GANG, resources={"replicas": 4}, limits={"step_s": 20})
    core.schedule()
    first, second = (_take(worker) for worker in workers)
    return first.start(), second.start()


def _take(worker: Worker) -> Member:
    (notice,) = worker.beat().assigned
    return Member(worker, worker.claim(notice))


def test_a_program_that_waits_holds_the_clocks_of_its_gang_and_why_says_so(
    core: Core, gang: tuple[Member, Member]
) -> None:
    first, second = gang
    run_id = first.claimed.run
    assert second.worker.beat(_beat(second, "in_step")).held == ()

    assert first.worker.beat(_beat(first, "waiting_for_telemetry")).held == ()
    assert second.worker.beat(_beat(second, "in_step")).held == (second.id,)
    run, (row,) = core.run(run_id), core.runs().items
    assert run.why is not None
    assert (run.why.rule, run.why.evidence) == ("telemetry", {"hosts": ["alpha"]})
    assert row.wait is not None
    assert row.wait.rule == "telemetry"
    phases = [event.body.get("phase") for event in core.events(run_id) if event.kind == "member"]
    assert phases[-1] == "waiting_for_telemetry"

    first.worker.beat(_beat(first, "own_code"))
    assert second.worker.beat(_beat(second, "in_step")).held == ()
    assert core.run(run_id).why is None
    assert core.runs().items[0].wait is None


def test_one_that_ends_while_it_waits_holds_nobody(core: Core, gang: tuple[Member, Member]) -> None:
    first, second = gang
    first.worker.beat(_beat(first, "waiting_for_telemetry"))
    first.end(EndReason.PROGRAM_ERROR)

    assert second.worker.beat(_beat(second, "in_step")).held == ()


def test_what_was_on_a_lost_host_is_a_gap_of_the_size_that_it_told_last(core: Core) -> None:
    worker = core.add_worker()
    run_id = core.submit(resources={"replicas": 8}, retries={"infrastructure": 0}).id
    core.schedule()
    member = worker.take().start()
    member.send(member.event("log", stream="stdout", text="one\n", offset=0))
    worker.beat(_beat(member, "own_code", spooled_seq=member.seq + 7, output_bytes=1_004))

    core.clock.advance(121)
    core.reap()

    assert core.run(run_id).state is RunState.FAILED
    found = {gap.what: gap for gap in _gaps(core, run_id)}
    assert found["spool"].count == 7
    assert (found["log"].size_bytes, found["log"].first_byte) == (1_000, 4)
    shown = _logs(core, run_id)
    assert shown.segments[-1].text == (
        "[drumline: 1000 bytes of output lost here: its host was lost before it had sent all]\n"
    )
    assert (shown.ended, shown.complete) == (True, False)


def test_where_a_lost_host_told_nothing_the_gap_has_no_size(core: Core) -> None:
    worker = core.add_worker()
    run_id = core.submit(resources={"replicas": 8}, retries={"infrastructure": 0}).id
    core.schedule()
    worker.take().start()
    core.clock.advance(121)
    core.reap()

    assert {(gap.what, gap.count, gap.size_bytes) for gap in _gaps(core, run_id)} == {
        ("spool", None, None),
        ("log", None, None),
    }
    (segment,) = _logs(core, run_id).segments
    assert segment.gap == api.LogGap(size_bytes=None)
    assert "output of unknown size lost here" in segment.text


def test_output_that_was_lost_at_the_end_is_told_once_all_else_is_stored(core: Core) -> None:
    worker = core.add_worker()
    run_id = core.submit(resources={"replicas": 8}).id
    core.schedule()
    member = worker.take().start()
    member.send(
        member.event("log", stream="stdout", text="one\n", offset=0),
        member.event("gap", what="log", count=1, size_bytes=96, detail="the disk was full"),
    )
    member.end(output_bytes=100)

    assert core.run(run_id).state is RunState.SUCCEEDED
    (gap,) = _gaps(core, run_id)
    assert (gap.what, gap.size_bytes, gap.first_byte, gap.next_byte) == ("log", 96, 4, 100)
    assert not _logs(core, run_id).complete
