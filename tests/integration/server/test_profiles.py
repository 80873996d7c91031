"""Traced steps: stored with their files, listed with the newest first, read lane by lane, within bounds."""

import base64
import re
from pathlib import Path
from typing import Any

import pytest

from drumline import Client
from drumline.contracts import api
from drumline.contracts.profiles import MAX_PROFILES
from drumline.errors import RunError
from drumline_server.base.callers import encode_cursor
from drumline_server.telemetry import step_times
from drumline_server.telemetry.comparison import read_replica_times
from drumline_server.telemetry.logs import list_gaps
from support.command_line import Cli
from support.core import Core, Member
from support.edge import EdgeServer

pytestmark = pytest.mark.both_databases


def running(core: Core, **changes: Any) -> Member:
    worker = core.add_worker("alpha")
    core.submit(resources={"replicas": 2}, **changes)
    core.schedule()
    return worker.take().start()


def traced(member: Member, step: int, **changes: Any) -> Any:
    """An event of two devices, of which one waits in a collective for the other."""
    first, second = [each.device for each in member.claimed.devices][:2]
    times = [(first, 600, 300, 100, 200), (second, 800, 200, 0, 0)]
    names = ("device", "computing_ns", "collective_ns", "both_ns", "idle_ns")
    devices = [dict(zip(names, each, strict=True)) | {"operations": 2} for each in times]
    lane = {"begins_ns": [0, 700], "durations_ns": [600, 300], "operations": [0, 1]}
    content = {
        "operations": [{"name": "dot.3", "is_collective": False}, {"name": "psum.7", "is_collective": True}],
        "lanes": [{"device": first, **lane}, {"device": second, **lane}],
        "left_out": 5,
    }
    fields = {"call": step, "span_ns": 1_000, "devices": devices, "content": content, **changes}
    return member.event("profile", step=step, **fields)


def times_of(member: Member, collective_ns: tuple[int, int]) -> Any:
    """What two devices did in a step of a microsecond: each computes when it is not in a collective."""
    devices = [each.device for each in member.claimed.devices][:2]
    fixed = {"both_ns": 0, "idle_ns": 0, "operations": 2}
    return [
        {"device": device, "computing_ns": 1_000 - waits, "collective_ns": waits, **fixed}
        for device, waits in zip(devices, collective_ns, strict=True)
    ]


def replicas(core: Core, run: str, cursor: str | None = None, limit: int = 10) -> api.ReplicaTimes:
    return core.read(
        lambda session: read_replica_times(session, core.project_id, run, None, cursor=cursor, limit=limit)
    )


@pytest.mark.parametrize(
    ("waits", "is_named"),
    [
        pytest.param([(500, 20)] * 5, True, id="always"),
        pytest.param([(500, 20)] * 3 + [(20, 500)] * 2, False, id="in 3 of 5 steps"),
        pytest.param([(90, 20)] * 5, False, id="by 7 % of a step"),
        pytest.param([(500, 20)] * 2, False, id="in two steps"),
    ],
)
def test_the_replica_that_waits_least_is_named_where_it_costs_a_tenth_of_a_step(
    core: Core, waits: list[tuple[int, int]], is_named: bool
) -> None:
    member = running(core)
    assert replicas(core, member.claimed.run).unmeasured == "not_traced"
    for step, pair in enumerate(waits):
        member.send(traced(member, step, devices=times_of(member, pair)))
    found = replicas(core, member.claimed.run)
    assert (found.unmeasured, found.steps, found.span_ms) == (None, tuple(range(len(waits))), 0.001)
    assert (found.slowest is not None) == is_named
    if found.slowest is not None:
        second = member.claimed.devices[1]
        assert (found.slowest.device, found.slowest.replica) == (second.device, second.replica)
        assert found.slowest.gain_percent == pytest.approx(48)
        assert found.slowest.waited_least == 5
        assert (found.devices[0].device, found.devices[0].collective_ms) == (second.device, 0.00002)
        assert sum(one.waited_least for one in found.devices) == len(waits)
        page = replicas(core, member.claimed.run, limit=1)
        assert len(page.devices) == 1
        assert replicas(core, member.claimed.run, page.next).devices == found.devices[1:]


def test_replicas_of_several_processes_are_compared_in_steps_that_all_have_traced(core: Core) -> None:
    workers = [core.add_worker(name, devices=2) for name in ("alpha", "beta")]
    run = core.submit(resources={"replicas": 4}).id
    core.schedule()
    first, second = [worker.take().start() for worker in workers]
    for step in range(12):
        first.send(traced(first, step, devices=times_of(first, (600, 500))))
        if step != 11:
            second.send(traced(second, step, devices=times_of(second, (550, 30))))
    found = replicas(core, run)
    assert found.steps == tuple(range(3, 11))
    assert found.slowest is not None
    assert (found.slowest.host_name, found.slowest.waited_least) == ("beta", 8)
    assert found.slowest.device == second.claimed.devices[1].device

    other = core.add_worker("gamma")
    silent = core.submit(resources={"replicas": 2}).id
    core.schedule()
    member = other.take().start()
    member.send(traced(member, 0, devices=[], unmeasured="platform"))
    assert replicas(core, silent).unmeasured == "not_told"


def listed(core: Core, run: str, **page: Any) -> api.Profiles:
    wanted: dict[str, Any] = {"cursor": None, "limit": 100, **page}
    return core.read(lambda session: step_times.list_profiles(session, core.project_id, run, None, **wanted))


def test_a_traced_step_is_read_back_with_its_lanes_and_its_file(
    server: EdgeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    core = server.core
    member = running(core, job={"record": {"profile_every": 5}})
    zipped = b"PK\x03\x04 of jax.profiler"
    member.send(traced(member, 4, file=base64.b64encode(zipped).decode(), file_bytes=len(zipped)))
    member.send(traced(member, 9, file_left_out="large", file_bytes=9_999_999))
    assert (member.claimed.profile_every, member.claimed.record.profile_every) == (5, None)
    with Client(server.url, server.admin_token) as client:
        newest, oldest = client.get(member.claimed.run).profiles()
        assert (newest.step, oldest.step, oldest.details.devices) == (9, 4, 2)
        details = oldest.details
        assert (details.computing_ns, details.collective_ns, details.both_ns, details.idle_ns) == (700, 250, 50, 100)
        lanes = oldest.lanes()
        assert [lanes.operations[number].is_collective for number in lanes.lanes[0].operations] == [False, True]
        assert [each.idle_ns for each in lanes.times] == [200, 0]
        assert lanes.left_out == 5
        oldest.save(tmp_path / oldest.file_name)
        assert (tmp_path / oldest.file_name).read_bytes() == zipped
        with pytest.raises(RunError, match="step 9 are not kept: larger than 512 KiB"):
            newest.save(tmp_path / "none")
    monkeypatch.setenv("DRUMLINE_URL", server.url)
    monkeypatch.setenv("DRUMLINE_TOKEN", server.admin_token)
    cli = Cli(capfd)
    assert cli("profiles", member.claimed.run, "--save", str(tmp_path / "saved")) == 0
    heading, first, second = cli.out.splitlines()
    assert heading.split("  ")[0] == "STEP"
    told = "9 0 2 0.001 ms 0.0007 ms 0.00025 ms 0.0001 ms not kept: larger than 512 KiB"
    assert re.sub(" +", " ", first) == told
    assert second.startswith("4")
    assert [each.name for each in (tmp_path / "saved").iterdir()] == [oldest.file_name]
    assert "tensorboard --logdir DIR" in cli.err
    assert cli("profiles", member.claimed.run, "--step", "5") == 0
    assert "step 5 was not traced; --record profile_every=N" in cli.err


def test_traces_that_are_lost_are_told_where_the_others_are_listed(
    server: EdgeServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    core = server.core
    member = running(core, job={"record": {"profile_every": 5}})
    why = "step 9 (call 9 of strategy.run): the program ended before its trace was read"
    member.send(traced(member, 4), member.event("gap", what="metrics", count=7))
    member.send(member.event("gap", what="profile", count=1, detail=why))
    run = member.claimed.run
    assert [(gap.what, gap.count, gap.detail) for gap in listed(core, run).lost] == [("profile", 1, why)]
    assert listed(core, run, cursor=encode_cursor(4, "prf_9")).lost == ()
    with Client(server.url, server.admin_token) as client:
        traces = client.get(run).profiles()
        assert [gap.detail for gap in traces.lost] == [why]
        assert [one.step for one in traces] == [4]
        assert client.get(run).profiles(attempt=member.claimed.attempt).lost == traces.lost
    monkeypatch.setenv("DRUMLINE_URL", server.url)
    monkeypatch.setenv("DRUMLINE_TOKEN", server.admin_token)
    cli = Cli(capfd)
    assert cli("profiles", run) == 0
    assert f"1 traced step lost: {why}" in cli.err


def test_more_traces_than_a_process_may_have_are_a_gap_and_all_others_are_listed_page_by_page(core: Core) -> None:
    member = running(core)
    member.send(*(traced(member, step) for step in range(MAX_PROFILES + 3)))
    run, project = member.claimed.run, core.project_id
    (gap,) = core.read(lambda session: list_gaps(session, project, run, None, cursor=None, limit=9)).items
    assert (gap.what, gap.count) == ("profile", 3)
    first = listed(core, run, limit=60)
    rest = listed(core, run, cursor=first.next, limit=60)
    assert [one.step for one in (*first.items, *rest.items)] == [*reversed(range(MAX_PROFILES))]
    assert rest.next is None
