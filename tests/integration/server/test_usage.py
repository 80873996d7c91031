"""What members of a run use of their hosts: now, and as of a step."""

from typing import Any

import pytest

from drumline.contracts import api
from drumline_server.base.errors import NotFoundError
from drumline_server.services.ledger import UsageOf, list_usage
from support.core import Core, Member

pytestmark = pytest.mark.both_databases
US = 1_000_000


def tell(member: Member, second: int, step: int | None, percent: float | None) -> None:
    """A stretch of a second, with what was used until its end where that was told."""
    device = member.claimed.devices[0].device
    used = {"processor_percent": percent, "memory_bytes": 10**9, "processes": 2}
    memory = [{"device": device, "used_bytes": 5, "limit_bytes": 10}]
    told: dict[str, Any] = {} if percent is None else {"usage": {**used, "devices": memory}}
    begin_us, end_us = second * US, (second + 1) * US
    member.send(
        member.event("time", begin_us=begin_us, end_us=end_us, spent_us={"steps": US}, step=step, **told),
    )


def usage(
    core: Core, run: str, step: int | None = None, cursor: str | None = None, limit: int = 10
) -> api.Page[api.MemberUsage]:
    wanted = UsageOf(None, step)
    return core.read(lambda session: list_usage(session, core.project_id, run, wanted, cursor=cursor, limit=limit))


def test_each_member_has_what_it_told_last_and_what_it_told_until_a_step(core: Core) -> None:
    workers = [core.add_worker(name, devices=4) for name in ("alpha", "beta")]
    run = core.submit(resources={"replicas": 8}).id
    assert usage(core, run).items == ()  # it has no member yet
    core.schedule()
    first, second = [worker.take().start() for worker in workers]
    for second_of_run, (step, percent) in enumerate([(None, None), (10, 150.0), (20, None), (30, 80.0), (40, None)]):
        tell(first, second_of_run, step, percent)
        tell(second, second_of_run, step, None)

    newest, silent = usage(core, run).items
    assert (newest.host_name, newest.rank, newest.step) == ("alpha", 0, 30)
    assert newest.usage is not None
    assert (newest.usage.processor_percent, newest.usage.processes) == (80.0, 2)
    assert [(each.used_bytes, each.limit_bytes, each.peak_bytes) for each in newest.usage.devices] == [(5, 10, None)]
    claimed_at = core.attempts(run)[0].created_at
    assert newest.at is not None
    assert 4.0 <= (newest.at - claimed_at).total_seconds() < 5.0
    assert (silent.host_name, silent.at, silent.usage, silent.step) == ("beta", None, None, None)

    (then, _) = usage(core, run, step=29).items
    assert then.usage is not None
    assert (then.step, then.usage.processor_percent) == (10, 150.0)
    assert usage(core, run, step=9).items[0].usage is None

    page = usage(core, run, limit=1)
    assert [one.rank for one in page.items] == [0]
    assert [one.rank for one in usage(core, run, cursor=page.next).items] == [1]


def test_of_a_run_that_is_not_there_nothing_is_told(core: Core) -> None:
    with pytest.raises(NotFoundError):
        usage(core, "run_00000000000000000000000000")
