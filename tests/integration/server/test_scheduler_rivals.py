"""Several schedulers: one leads, by a lease; and should two act all the same, no harm is done (fault F17)."""

import asyncio
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from drumline_server.base.errors import LeadershipLostError
from drumline_server.scheduling.dispatch import Guard, schedule
from drumline_server.scheduling.leadership import LeasedLeadership, SoleServer, leadership_of
from drumline_server.storage.database import Database
from drumline_server.storage.models import Attempt, Hold, Lease
from support.core import GANG, TERMS, Core
from support.processes import wait_until

pytestmark = pytest.mark.both_databases

HOSTS, DEVICES, RUNS = 6, 4, 30
LEASE_S = 1.0


@pytest.fixture
def rivals(database_url: str) -> Iterator[list[Database]]:
    """Two servers' views of one database."""
    databases = [Database(database_url, pool_size=4) for _ in range(2)]
    yield databases
    for database in databases:
        database.close()


def fill(core: Core) -> None:
    for number in range(HOSTS):
        core.add_worker(f"host-{number}", devices=DEVICES)
    for number in range(RUNS):
        core.submit(job=GANG, resources={"replicas": (1, 2, 6)[number % 3]})


def finish_all(core: Core) -> None:
    """Every attempt ends, so that the next round has room again."""
    for run in core.runs(limit=200, states=("PLACED",)).items:
        core.cancel(run.id)


def act(databases: list[Database], core: Core, rounds: int, guard: Guard | None = None) -> None:
    """Each database's scheduler goes round in a thread of its own, all at once."""
    barrier = threading.Barrier(len(databases))
    errors: list[BaseException] = []

    def compete(database: Database) -> None:
        try:
            barrier.wait()
            for _ in range(rounds):
                schedule(database, TERMS, now=core.clock.now(), guard=guard)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test tells it
            errors.append(error)

    threads = [threading.Thread(target=compete, args=(database,)) for database in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    assert errors == []


def test_two_schedulers_at_once_hold_no_device_twice_and_start_no_run_twice(rivals: list[Database]) -> None:
    core = Core(rivals[0])
    fill(core)

    while core.runs(states=("QUEUED",)).items:
        act(rivals, core, rounds=3)
        live = core.read(lambda session: list(session.scalars(select(Hold).where(Hold.released_at.is_(None)))))
        assert max(Counter(hold.device_id for hold in live).values()) == 1
        finish_all(core)

    attempts = core.read(lambda session: list(session.scalars(select(Attempt))))
    assert Counter(attempt.run_id for attempt in attempts).most_common(1)[0][1] == 1
    assert len(attempts) == RUNS


def test_schedulers_at_once_spend_nearly_all_their_transactions_on_runs_that_start(rivals: list[Database]) -> None:
    """At least four in five: so two start runs nearly as fast as one, however busy the machine is."""
    core = Core(rivals[0])
    for number in range(3):
        core.add_worker(f"host-{number}", devices=8)
    for _ in range(24):
        core.submit()
    tried: list[Session] = []

    act(rivals, core, rounds=1, guard=tried.append)

    assert len(core.runs(limit=200, states=("PLACED",)).items) == 24
    assert len(tried) <= 24 / 0.8


def test_one_server_leads_and_another_follows_when_it_resigns(postgres_url: str) -> None:
    database = Database(postgres_url)
    first, second = (LeasedLeadership(database, lease_s=60) for _ in range(2))

    async def act() -> list[bool]:
        seen = [await first.renew(), await second.renew(), await first.renew()]
        await first.resign()
        return [*seen, await second.renew(), await first.renew()]

    assert asyncio.run(act()) == [True, False, True, True, False]
    assert (first.is_held(), second.is_held()) == (False, True)
    database.close()


def test_server_that_comes_back_after_its_lease_ran_out_writes_nothing(postgres_url: str) -> None:
    database = Database(postgres_url)
    core = Core(database)
    core.add_worker()
    run = core.submit()
    old, new = (LeasedLeadership(database, lease_s=LEASE_S) for _ in range(2))
    assert asyncio.run(old.renew())
    wait_until(lambda: asyncio.run(new.renew()), timeout_s=30, what="the lease runs out")

    assert not old.is_held()
    with pytest.raises(LeadershipLostError):
        schedule(database, TERMS, now=core.clock.now(), guard=old.guard)
    assert core.attempts(run.id) == ()
    assert schedule(database, TERMS, now=core.clock.now(), guard=new.guard) == [run.id]
    assert database.read_now(lambda session: session.scalars(select(Lease.fence)).one()) == 2
    database.close()


_LEADER = """
import asyncio, sys
from drumline_server.storage.database import Database
from drumline_server.base.errors import LeadershipLostError
from drumline_server.scheduling.leadership import LeasedLeadership

assert asyncio.run(LeasedLeadership(Database(sys.argv[1]), lease_s=300).renew())
print("leads", flush=True)
sys.stdin.read()
"""


def test_server_that_was_killed_is_followed_at_once_where_its_end_can_be_seen(postgres_url: str) -> None:
    database = Database(postgres_url)
    new = LeasedLeadership(database, lease_s=300)
    with subprocess.Popen(
        [sys.executable, "-c", _LEADER, postgres_url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as old:
        assert old.stdout is not None
        assert old.stdout.readline() == "leads\n"
        assert not asyncio.run(new.renew()), "it lives"
        old.kill()
    assert asyncio.run(new.renew())
    database.close()


@pytest.mark.parametrize("holder", ["another-boot:4026531836:1073741824", "another-host:1073741824", ""])
def test_nobody_judges_a_server_of_another_machine_or_container(postgres_url: str, holder: str) -> None:
    database = Database(postgres_url)
    old, new = (LeasedLeadership(database, lease_s=300) for _ in range(2))
    assert asyncio.run(old.renew())
    database.write_now(lambda session: session.execute(update(Lease).values(holder=holder)) and None)

    assert not asyncio.run(new.renew())
    database.close()


def test_server_with_a_sqlite_file_of_its_own_needs_no_lease(sqlite_url: str) -> None:
    database = Database(sqlite_url)

    assert isinstance(leadership_of(database, lease_s=60), SoleServer)
    database.close()
