"""The loops: woken by commits, and never dead."""

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from drumline.contracts.reasons import EndReason
from drumline.contracts.states import AttemptState, RunState
from drumline_server.base.settings import Settings, SystemClock
from drumline_server.scheduling import loops
from drumline_server.scheduling.dispatch import schedule
from drumline_server.scheduling.leadership import Stalls, watch_stalls
from drumline_server.scheduling.loops import DeadlineLoop, start_loops
from drumline_server.storage.database import Database
from drumline_server.storage.models import Host
from drumline_server.storage.notifications import QUEUE
from support.core import Core, Member

STEP_S = 20.0


@pytest.fixture
def live(database: Database) -> Core:
    """A core on the clock of this machine, as the loops have it."""
    core = Core(database)
    core.clock = SystemClock()  # type: ignore[assignment] # tells the time, and nobody here moves it
    return core


@contextlib.asynccontextmanager
async def looping(core: Core, tmp_path: Path, **changes: Any) -> AsyncIterator[None]:
    """Loops that look by themselves only once an hour: whatever happens was woken."""
    settings = Settings.model_validate(
        {"data_dir": tmp_path, "schedule_every_s": 3600, "deadlines_every_s": 0.05, **changes}
    )
    running = start_loops(core.database, settings, core.clock)
    try:
        yield
    finally:
        await running.stop()


async def until(condition: Callable[[], object], what: str, timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < deadline, f"waited {timeout_s} s until {what}"
        await asyncio.sleep(0.01)


def is_in(core: Core, run_id: str, state: RunState) -> Callable[[], bool]:
    return lambda: core.run(run_id).state is state


def test_submission_wakes_the_scheduler(live: Core, tmp_path: Path) -> None:
    async def act() -> None:
        worker = await asyncio.to_thread(live.add_worker)
        async with looping(live, tmp_path):
            run = await asyncio.to_thread(live.submit)
            await until(is_in(live, run.id, RunState.PLACED), "the run is placed")
            assert worker.beat().assigned

    asyncio.run(act())


def test_freed_devices_wake_the_scheduler(live: Core, tmp_path: Path) -> None:
    async def act() -> None:
        worker = await asyncio.to_thread(live.add_worker, devices=1)
        async with looping(live, tmp_path):
            first = await asyncio.to_thread(live.submit)
            await until(is_in(live, first.id, RunState.PLACED), "the first run is placed")
            second = await asyncio.to_thread(live.submit)
            member = await asyncio.to_thread(worker.take)
            assert is_in(live, second.id, RunState.QUEUED)()
            await asyncio.to_thread(member.end)
            await until(is_in(live, second.id, RunState.PLACED), "the second run is placed")

    asyncio.run(act())


def test_commits_that_never_cease_make_few_rounds(live: Core, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[float] = []

    def woken_again_meanwhile(database: Database, *terms: Any, **options: Any) -> list[str]:
        began.append(time.monotonic())
        database.commit_news.publish([QUEUE])
        return schedule(database, *terms, **options)

    monkeypatch.setattr(loops, "schedule", woken_again_meanwhile)

    async def act() -> None:
        async with looping(live, tmp_path):
            await until(lambda: len(began) >= 6, "six rounds began")

    asyncio.run(act())
    assert began[5] - began[1] >= 4 * 0.1


def test_deadline_loop_enforces_a_queue_limit(live: Core, tmp_path: Path) -> None:
    async def act() -> None:
        async with looping(live, tmp_path):
            run = await asyncio.to_thread(live.submit, wait_for_devices=True, limits={"queue_s": 0.2})
            await until(is_in(live, run.id, RunState.FAILED), "the run failed")

    asyncio.run(act())


def test_no_lease_runs_out_right_after_the_start(live: Core, tmp_path: Path) -> None:
    """The worker was silent for an hour, but so was the server."""
    worker = live.add_worker()
    run = live.submit(limits={"run_s": 86_400})
    live.schedule()
    worker.take().start()

    class Later:
        asked = 0

        def now(self) -> int:
            self.asked += 1
            return SystemClock().now() + 3_600_000_000

    async def act() -> None:
        later = Later()
        live.clock = later  # type: ignore[assignment] # a clock, an hour on
        async with looping(live, tmp_path):
            await until(lambda: later.asked >= 20, "the loops went round many times")

    asyncio.run(act())
    assert live.run(run.id).state is RunState.RUNNING


def test_loops_go_on_after_the_database_was_away(
    sqlite_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = Database(sqlite_url)
    core = Core(database)
    core.clock = SystemClock()  # type: ignore[assignment] # tells the time, and nobody here moves it
    core.add_worker()
    core.submit(key="before")
    other = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None, check_same_thread=False)

    async def act() -> None:
        other.execute("BEGIN IMMEDIATE")
        async with looping(core, tmp_path, schedule_every_s=0.1):
            await until(lambda: "the schedule loop failed" in caplog.text, "SQLite waited for the lock in vain")
            other.execute("ROLLBACK")
            await until(lambda: core.runs(states=(RunState.PLACED,)).items, "the run is placed")

    asyncio.run(act())
    other.close()
    database.close()


def test_loops_stop_whatever_they_are_doing(sqlite_url: str, tmp_path: Path) -> None:
    """A cancellation that met the answer of the database was lost once, and the server never stopped."""
    database = Database(sqlite_url)
    core = Core(database)
    core.clock = SystemClock()  # type: ignore[assignment] # tells the time, and nobody here moves it

    async def act() -> None:
        for round_number in range(200):
            async with looping(core, tmp_path, schedule_every_s=0.0005, deadlines_every_s=0.0005):
                await asyncio.sleep(0.0001 * (round_number % 40))

    asyncio.run(asyncio.wait_for(act(), 60))
    database.close()


def test_jump_of_the_servers_clock_restarts_every_lease(core: Core, tmp_path: Path) -> None:
    run = _silent_run(core)
    settings = Settings.model_validate({"data_dir": tmp_path, "deadlines_every_s": STEP_S})
    deadline_loop = DeadlineLoop(core.database, settings, core.clock)
    _rounds(core, deadline_loop, beating=True)  # the time after the start is over

    core.clock.advance(3600)
    asyncio.run(deadline_loop.round())
    assert core.run(run).state is RunState.RUNNING

    _rounds(core, deadline_loop, beating=False)
    assert core.attempts(run)[0].state is AttemptState.LOST


def test_stalls_between_which_the_loops_went_round_extend_every_lease_by_as_long(core: Core, tmp_path: Path) -> None:
    """Each round came in time, so that no single one tells of an outage; no heartbeat got through all the same."""
    run = _silent_run(core)
    settings = Settings.model_validate({"data_dir": tmp_path, "deadlines_every_s": STEP_S})
    stalls = Stalls()
    deadline_loop = DeadlineLoop(core.database, settings, core.clock, stalls=stalls)
    _rounds(core, deadline_loop, beating=True)  # the time after the start is over

    for _ in range(7):
        stalls.note(core.clock.advance(STEP_S), 18 * 1_000_000)
        asyncio.run(deadline_loop.round())
    assert core.run(run).state is RunState.RUNNING

    _rounds(core, deadline_loop, beating=False)
    assert core.attempts(run)[0].state is AttemptState.LOST


def test_loop_that_is_held_again_and_again_is_noticed() -> None:
    async def act() -> int:
        stalls, clock = Stalls(), SystemClock()
        began = clock.now()
        watching = asyncio.create_task(watch_stalls(stalls, clock))
        while not stalls.since(began) > 600_000:
            time.sleep(0.25)  # the fault: something holds the event loop
            await asyncio.sleep(0)
            assert clock.now() < began + 30_000_000
            await asyncio.sleep(0.06)  # until the next look began
        took = clock.now() - began
        watching.cancel()
        return took - stalls.since(began)

    assert asyncio.run(act()) >= 0


def test_clock_that_was_set_back_delays_no_retry_and_no_expiry(core: Core, tmp_path: Path) -> None:
    """What was stamped an hour ahead would wait for that hour."""
    core.clock.advance(3600)
    worker = core.add_worker(devices=2)
    failed, unclaimed = core.submit(resources={"replicas": 1}), core.submit(resources={"replicas": 1})
    core.schedule()
    first, _ = worker.beat().assigned
    Member(worker, worker.claim(first)).start().end(EndReason.KILLED)
    core.clock.advance(-3600)
    deadline_loop = DeadlineLoop(core.database, Settings.model_validate({"data_dir": tmp_path}), core.clock)

    asyncio.run(deadline_loop.round())
    core.clock.advance(61)
    asyncio.run(deadline_loop.round())

    assert {core.run(failed.id).state, core.run(unclaimed.id).state} == {RunState.QUEUED}


def test_shorter_t_does_not_hold_for_workers_that_were_promised_a_longer_one(core: Core, tmp_path: Path) -> None:
    """Their shims kill by the T of their start: a takeover before that would run the program twice."""
    run = _silent_run(core)
    settings = Settings.model_validate({"data_dir": tmp_path, "deadlines_every_s": STEP_S, "takeover_s": 45})
    deadline_loop = DeadlineLoop(core.database, settings, core.clock)

    _rounds(core, deadline_loop, 5, beating=False)
    assert core.run(run).state is RunState.RUNNING
    _rounds(core, deadline_loop, 2, beating=False)
    assert core.attempts(run)[0].state is AttemptState.LOST


def _silent_run(core: Core) -> str:
    worker = core.add_worker()
    run = core.submit(limits={"run_s": 86_400})
    core.schedule()
    worker.take().start()
    return run.id


def _rounds(core: Core, deadline_loop: DeadlineLoop, rounds: int = 7, *, beating: bool) -> None:
    """Rounds of the deadline loop, by default for more than one T."""
    for _ in range(rounds):
        core.clock.advance(STEP_S)
        if beating:
            core.write(lambda session: session.execute(update(Host).values(last_heartbeat_at=core.clock.now())))
        asyncio.run(deadline_loop.round())
