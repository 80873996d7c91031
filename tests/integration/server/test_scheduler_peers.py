"""Several servers of one database: what stands still in one of them costs no worker its lease."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select, update

from drumline.contracts.states import AttemptState, RunState
from drumline_server.base.settings import Settings, SystemClock
from drumline_server.scheduling.leadership import Presence, keep_presence, longest_stall_us, this_process
from drumline_server.scheduling.loops import DeadlineLoop
from drumline_server.storage.database import Database
from drumline_server.storage.models import ServerProcess
from support.core import TAKEOVER_S, Core

pytestmark = pytest.mark.both_databases

SECOND = 1_000_000


@pytest.fixture
def core(postgres_url: str) -> Iterator[Core]:
    """SQLite has one server."""
    database = Database(postgres_url)
    yield Core(database)
    database.close()


def stall_s(core: Core) -> float:
    return core.read(lambda session: longest_stall_us(session, TAKEOVER_S)) / SECOND


def rewind(core: Core, seconds: float, **more: str) -> None:
    """Every server was last heard of so much earlier."""
    earlier = update(ServerProcess).values(seen_at=ServerProcess.seen_at - int(seconds * SECOND), **more)
    core.write(lambda session: session.execute(earlier) and None)


def test_a_server_that_stands_still_counts_while_it_does_and_after_it_came_back(core: Core) -> None:
    presence = Presence(core.database, SystemClock(), takeover_s=TAKEOVER_S)
    asyncio.run(presence.report())
    assert stall_s(core) == 0

    rewind(core, 60)
    assert 60 <= stall_s(core) < 90

    asyncio.run(presence.report())
    assert 60 <= stall_s(core) < 90
    asyncio.run(presence.report())
    assert 60 <= stall_s(core) < 90

    asyncio.run(presence.withdraw())
    assert stall_s(core) == 0


def test_a_server_that_stays_away_is_not_waited_for_for_ever_and_one_that_is_gone_not_at_all(core: Core) -> None:
    asyncio.run(Presence(core.database, SystemClock(), takeover_s=TAKEOVER_S).report())
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    space = this_process().rpartition(":")[0]

    rewind(core, 60, process=f"{space}:{ended.pid}")
    assert stall_s(core) == 0

    rewind(core, 0, process=f"another machine:{ended.pid}")
    assert stall_s(core) >= 60

    rewind(core, 2 * TAKEOVER_S)
    assert stall_s(core) == 0
    asyncio.run(Presence(core.database, SystemClock(), takeover_s=TAKEOVER_S).report())
    assert len(core.read(lambda session: session.scalars(select(ServerProcess)).all())) == 1


def test_a_lease_runs_out_later_by_as_long_as_another_server_stands_still(core: Core, tmp_path: Path) -> None:
    worker = core.add_worker()
    run = core.submit(limits={"run_s": 86_400})
    core.schedule()
    worker.take().start()
    deadline_loop = DeadlineLoop(
        core.database, Settings.model_validate({"data_dir": tmp_path, "deadlines_every_s": 20}), core.clock
    )
    for _ in range(7):  # the time after the start is over
        core.clock.advance(20)
        worker.beat()
        asyncio.run(deadline_loop.round())
    asyncio.run(Presence(core.database, SystemClock(), takeover_s=TAKEOVER_S).report())

    for _ in range(7):
        core.clock.advance(20)
        rewind(core, 20)
        asyncio.run(deadline_loop.round())
    assert core.run(run.id).state is RunState.RUNNING

    rewind(core, 2 * TAKEOVER_S)  # it does not come back
    core.clock.advance(20)
    asyncio.run(deadline_loop.round())
    assert core.attempts(run.id)[0].state is AttemptState.LOST


def test_a_server_that_ends_leaves_nothing_behind(core: Core) -> None:
    def rows() -> int:
        return len(core.read(lambda session: session.scalars(select(ServerProcess)).all()))

    async def act() -> None:
        async with keep_presence(core.database, SystemClock(), takeover_s=TAKEOVER_S):
            async with asyncio.timeout(20):
                while not await asyncio.to_thread(rows):
                    await asyncio.sleep(0.01)

    asyncio.run(act())
    assert rows() == 0
