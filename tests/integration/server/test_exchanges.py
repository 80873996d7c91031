"""What the replicas of a run exchange in a step: as the member of rank 0 told it, bounded, the rest counted."""

from typing import Any

import pytest

from drumline.contracts import api
from drumline.contracts.programs import MAX_COLLECTIVES, MAX_PROGRAMS
from drumline.contracts.reasons import EndReason
from drumline_server.services.plan_comparison import read_placement
from drumline_server.telemetry.ingest import MOST_EXCHANGES
from fuzz.world import PROGRAM
from support.core import Core, Member

pytestmark = pytest.mark.both_databases


def gang(core: Core, **strategy: Any) -> tuple[str, list[Member]]:
    """A run over two hosts."""
    workers = [core.add_worker(name, devices=2) for name in ("alpha", "beta")]
    run = core.submit(resources={"replicas": 4}, retries={"user": 1, "infrastructure": 1}, **strategy).id
    core.schedule()
    return run, [worker.take().start() for worker in workers]


def place(member: Member) -> Member:
    """Says that its engine built the replicas."""
    replicas = [{"replica": 0, "devices": [member.claimed.devices[0].device]}]
    member.send(member.event("placement", strategy="mirrored", executor="spmd", replicas=replicas))
    return member


def tell(member: Member, *programs: dict[str, Any]) -> None:
    member.send(*(member.event("program", program=program) for program in programs))


def read(core: Core, run: str, attempt: str | None = None) -> api.Exchanges:
    return core.read(lambda session: read_placement(session, core.project_id, run, attempt)).exchanges


def test_a_run_says_what_crosses_between_its_hosts_with_the_payload_of_a_step(core: Core) -> None:
    run, members = gang(core)
    first, second = map(place, members)
    varying = {**PROGRAM["collectives"][0], "name": "z", "kind": "all_gather", "op": None, "times": None}
    one = {**PROGRAM["collectives"][0], "times": 3}
    totals = [
        {"kind": "all_gather", "op": None, "crosses": True, "operations": 1, "times": 0, "size_bytes": 0, "varying": 1},
        {**PROGRAM["totals"][0], "times": 3, "size_bytes": 72},
    ]
    tell(first, {**PROGRAM, "collectives": [one, varying], "totals": totals})
    tell(second, {**PROGRAM, "name": "of another rank"})

    found = read(core, run)
    assert (found.not_recorded, found.more_programs) == (None, 0)
    (program,) = found.programs
    assert (program.name, program.executor, program.more) == ("train", "spmd", 0)
    assert [(one.kind, one.crosses_hosts, one.bytes_per_step, one.varying) for one in program.totals] == [
        ("all_reduce", True, 72, 0),
        ("all_gather", True, 0, 1),
    ]
    assert [(one.name, one.size_bytes, one.times, one.bytes_per_step) for one in program.exchanges] == [
        ("w", 24, 3, 72),
        ("z", 24, None, None),
    ]
    told = [event.body for event in core.events(run) if event.kind == "program"]
    assert told == [{"name": "train", "count": 1}]


def test_the_first_programs_and_their_first_exchanges_are_kept_and_the_rest_is_counted(core: Core) -> None:
    run, (member, _) = gang(core)
    place(member)
    many = {**PROGRAM, "collectives": PROGRAM["collectives"] * (MAX_COLLECTIVES - 100), "more_collectives": 7}
    tell(member, many)
    tell(member, many, *[{**PROGRAM, "digest": str(number)} for number in range(MAX_PROGRAMS)])

    found = read(core, run)
    assert [len(one.exchanges) for one in found.programs] == [156, MOST_EXCHANGES - 156, *[0] * (MAX_PROGRAMS - 2)]
    assert [one.more for one in found.programs] == [7, 156 + 7 - 44, *[1] * (MAX_PROGRAMS - 2)]
    assert all(len(one.totals) == 1 for one in found.programs)
    assert found.more_programs == 2


def test_why_nothing_is_recorded_is_said(core: Core) -> None:
    run, members = gang(core)
    assert read(core, run).not_recorded == "no_step"
    first, second = map(place, members)
    assert read(core, run).not_recorded == "no_step"
    first.send(first.event("progress", step=3))
    assert read(core, run).not_recorded == "not_told"
    attempt = first.claimed.attempt
    for member in (first, second):
        member.end(EndReason.PROGRAM_ERROR)
    assert read(core, run, attempt).not_recorded == "not_told"


def test_a_program_told_before_any_placement_is_no_worker_of_ours_and_is_not_kept(core: Core) -> None:
    run, (member, _) = gang(core)
    tell(member, PROGRAM)
    assert read(core, run).programs == ()
