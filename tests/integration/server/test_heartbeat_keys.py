"""What heartbeats tell of members needs their keys: a host's token alone moves no run."""

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from drumline.contracts.problems import ProblemCode
from drumline.contracts.programs import WAITING_FOR_TELEMETRY, MemberTick
from drumline.contracts.states import AttemptState
from drumline.contracts.worker_api import KEYED_HEARTBEAT_PROTOCOL, OLDEST_PROTOCOL, PROTOCOL_VERSION, MemberHeartbeat
from drumline_server.storage.models import Host
from drumline_server.storage.models import Member as MemberRow
from support.core import GANG, Core, Member, key_of
from support.edge import EdgeServer
from support.runs import placed, running

pytestmark = pytest.mark.both_databases
THIEVES = {"without a key": None, "with another key": key_of("mem_of_another")}


@pytest.mark.parametrize("speaks", THIEVES)
@pytest.mark.parametrize("protocol", [PROTOCOL_VERSION, KEYED_HEARTBEAT_PROTOCOL - 1, OLDEST_PROTOCOL])
def test_a_heartbeat_moves_no_member_without_its_key_whatever_protocol_it_names(
    core: Core, speaks: str, protocol: int
) -> None:
    """Whoever has only the host's token, and knows incarnation and fence; also one who registers in the past."""
    run_id, member = running(core)
    member.worker.beat(_at_step(member, 3))
    if protocol != PROTOCOL_VERSION:
        member.worker.register([member.alive()], protocol=protocol)
    core.clock.advance(2)
    told = _at_step(member, 9, activity=WAITING_FOR_TELEMETRY, overdue=True)
    reply = member.worker.beat(told, key=THIEVES[speaks])

    (refusal,) = reply.refused
    assert (refusal.member, refusal.code) == (member.id, ProblemCode.FENCED)
    assert f"claimed with a key, and this came {speaks}" in refusal.detail
    assert reply.fenced == reply.cancelled == reply.assigned == ()
    kept = _kept(core, member.id)
    assert (kept.step, kept.phase, (kept.tick or {})["advances"]) == (3, "running", 3)
    assert core.attempts(run_id)[0].state is AttemptState.RUNNING
    heard_at = core.read(lambda session: session.get_one(Host, member.worker.host_id).last_heartbeat_at)
    assert heard_at == core.clock.now(), "the host lives all the same"

    assert member.worker.beat(_at_step(member, 4)).refused == ()
    assert _kept(core, member.id).step == 4


def test_a_hang_is_reported_with_the_key_only(core: Core) -> None:
    workers = [core.add_worker(name, devices=2) for name in ("alpha", "beta")]
    run_id = core.submit(job=GANG, resources={"replicas": 4}).id
    core.schedule()
    member, *_ = [member.start() for member in [worker.take() for worker in workers]]
    hangs = _at_step(member, 3, overdue=True)
    assert member.worker.beat(hangs, key=None).cancelled == ()
    assert core.attempts(run_id)[0].state is AttemptState.RUNNING

    member.worker.beat(hangs)
    assert core.attempts(run_id)[0].state is AttemptState.FINISHING


def test_one_member_without_its_key_harms_no_other_of_its_host(core: Core) -> None:
    worker = core.add_worker(devices=2)
    for _ in range(2):
        core.submit(resources={"replicas": 1})
    core.schedule()
    first, second = (Member(worker, worker.claim(notice)).start() for notice in worker.beat().assigned)
    reply = worker.beat(_at_step(first, 5), _at_step(second, 7).model_copy(update={"key": key_of(second.id)}), key=None)

    assert [refusal.member for refusal in reply.refused] == [first.id]
    assert [_kept(core, member.id).step for member in (first, second)] == [None, 7]


def test_nobody_holds_up_the_end_of_a_run_without_its_key(core: Core) -> None:
    _, member = running(core)
    member.event("progress", step=1)
    member.end()  # the event is still to come
    member.worker.beat(unsent={member.id: 10})
    told = _kept(core, member.id)
    assert told.unsent_bytes == 10
    core.clock.advance(5)
    reply = member.worker.beat(unsent={member.id: 5_000_000}, key=None)

    assert [refusal.member for refusal in reply.refused] == [member.id]
    assert _kept(core, member.id).unsent_bytes == 10
    assert _kept(core, member.id).telemetry_at == told.telemetry_at


@pytest.mark.parametrize("protocol", [OLDEST_PROTOCOL, KEYED_HEARTBEAT_PROTOCOL - 1])
def test_a_member_that_an_older_worker_claimed_is_heard_without_a_key(core: Core, protocol: int) -> None:
    _, worker = placed(core)
    worker.register(protocol=protocol)
    (notice,) = worker.beat().assigned
    key = key_of(notice.member) if protocol >= 3 else None
    member = Member(worker, worker.claim(notice, key=key), key=key).start()
    assert worker.beat(_at_step(member, 3), key=None).refused == ()
    assert _kept(core, member.id).step == 3

    worker.register([member.alive()])  # a newer worker goes on with it
    assert worker.beat(_at_step(member, 4), key=key).refused == ()
    assert _kept(core, member.id).step == 4


def test_a_key_that_comes_of_an_older_claim_is_looked_at(core: Core) -> None:
    _, worker = placed(core)
    worker.register(protocol=KEYED_HEARTBEAT_PROTOCOL - 1)
    member = worker.take().start()

    assert worker.beat(_at_step(member, 9), key=key_of("mem_of_another")).refused[0].member == member.id
    assert _kept(core, member.id).step is None


def test_nothing_is_heard_of_a_member_that_nobody_claimed(core: Core) -> None:
    _, worker = placed(core)
    (notice,) = worker.beat().assigned
    reply = worker.beat(MemberHeartbeat(member=notice.member, fence=notice.fence, step=9))

    assert _kept(core, notice.member).step is None
    assert reply.assigned == (notice,)


def test_a_worker_that_has_nothing_to_tell_of_a_member_yet_needs_no_key(core: Core) -> None:
    """It makes the key after it has listed the member: a heartbeat may be under way when the claim is taken."""
    _, worker = placed(core)
    member = worker.take()

    assert worker.beat(MemberHeartbeat(member=member.id, fence=member.claimed.fence), key=None).refused == ()


def test_the_api_answers_whose_keys_were_missing_and_counts_them(server: EdgeServer) -> None:
    _, member = running(server.core)
    client = server.client(server.worker_token(member.worker.host_id))
    told = {"member": member.id, "fence": member.claimed.fence, "step": 9}
    beat = {"incarnation": member.worker.incarnation, "sent_at": "2027-01-15T08:00:00Z", "members": [told]}
    before = _count(server)
    answers = [
        client.post("/api/v1/worker/heartbeat", json={**beat, **spoken})
        for spoken in ({"protocol": PROTOCOL_VERSION}, {"protocol": KEYED_HEARTBEAT_PROTOCOL - 1}, {})
    ]

    assert [answer.status_code for answer in answers] == [200] * 3
    assert [answer.json()["refused"][0]["code"] for answer in answers] == ["fenced"] * 3
    assert _count(server) == before + 3
    assert _kept(server.core, member.id).step is None
    key = key_of(member.id).get_secret_value()
    told_with_key = {**beat, "members": [{**told, "key": key}], "protocol": PROTOCOL_VERSION}
    assert client.post("/api/v1/worker/heartbeat", json=told_with_key).json()["refused"] == []
    assert _kept(server.core, member.id).step == 9


def test_a_malformed_key_is_refused_by_its_place_and_never_repeated(server: EdgeServer) -> None:
    _, member = running(server.core)
    client = server.client(server.worker_token(member.worker.host_id))
    told = {"member": member.id, "fence": member.claimed.fence, "step": 9, "key": "tooshortasecret"}
    beat = {"incarnation": member.worker.incarnation, "sent_at": "2027-01-15T08:00:00Z", "members": [told]}
    answer = client.post("/api/v1/worker/heartbeat", json=beat)

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "members.0.key"
    assert "tooshortasecret" not in answer.text


def _at_step(member: Member, step: int, **tick: Any) -> MemberHeartbeat:  # Any: fields of the tick
    told = {"activity": "in_step", "advances": step, "idle_s": 0.0, "silent_s": 0.0, **tick}
    return MemberHeartbeat(
        member=member.id, fence=member.claimed.fence, step=step, tick=MemberTick.model_validate(told)
    )


def _kept(core: Core, member: str) -> MemberRow:
    return core.read(lambda session: session.get_one(MemberRow, member))


def _count(server: EdgeServer) -> float:
    families = text_string_to_metric_families(server.admin.get("/metrics").text)
    return next(family.samples[0].value for family in families if family.name == "drumline_refused_members")
