"""Who holds a token is remembered for a second, and never past a revocation by this process."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline_server.base.errors import DrumlineError, UnauthenticatedError
from drumline_server.services import identity
from drumline_server.services.access import Maker, create_token, revoke_token
from drumline_server.services.identity import TokenCache
from drumline_server.storage import tokens
from drumline_server.storage.database import Database
from drumline_server.storage.requests import BatchingExecutor
from support.core import Core
from support.processes import wait_until

pytestmark = pytest.mark.both_databases

Outcomes = list[identity.Authentication | DrumlineError]


class LookUps:
    """The look-ups of `people`, counted; each waits after reading while `go_on` is not set."""

    def __init__(self, core: Core) -> None:
        self.count, self.monotonic_s = 0, 0.0
        self.has_read, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()
        self._core = core

    def people(self) -> TokenCache[identity.Authentication]:
        """For the running event loop."""
        database = self._core.database
        finds: BatchingExecutor[str, identity.Authentication] = BatchingExecutor(database.read, self._find)
        return TokenCache(finds, database.commit_news, self._core.clock, monotonic=lambda: self.monotonic_s)

    def advance(self, seconds: float, *, set_back_s: float = 0.0) -> None:
        """So much later; the server's clock was set back meanwhile."""
        self.monotonic_s += seconds
        self._core.clock.advance(seconds - set_back_s)

    def _find(self, session: Session, secrets: Sequence[str]) -> Outcomes:
        self.count += 1
        found = identity.principals_of_tokens(session, secrets, now=self._core.clock.now())
        self.has_read.set()
        assert self.go_on.wait(20)
        return found


@pytest.fixture
def elsewhere(core: Core) -> Iterator[Database]:
    """The same database as another process has it."""
    database = Database(core.database.url)
    yield database
    database.close()


def token_of(core: Core) -> api.TokenCreated:
    request = api.TokenCreate(name="robot", kind="pat", role="submitter")
    return core.write(
        lambda session: create_token(
            session, request, project_id=core.project_id, by=api.PrincipalRef(name="tester"), now=core.clock.now()
        )
    )


def revoke(core: Core, token: api.TokenCreated, database: Database | None = None) -> None:
    (database or core.database).write_now(
        lambda session: revoke_token(
            session, core.project_id, token.id, by=api.PrincipalRef(name="tester"), now=core.clock.now()
        )
    )


def test_token_is_looked_up_once_a_second(core: Core) -> None:
    token, looked = token_of(core), LookUps(core)

    async def run() -> None:
        people = looked.people()
        for _ in range(5):
            assert (await people.get(token.secret.get_secret_value())).principal.token_id == token.id
        assert looked.count == 1
        looked.advance(1)
        await people.get(token.secret.get_secret_value())
        assert looked.count == 2

    asyncio.run(run())


def test_token_is_refused_from_its_revocation_on(core: Core) -> None:
    token, other, looked = token_of(core), token_of(core), LookUps(core)

    async def run() -> None:
        people = looked.people()
        await people.get(token.secret.get_secret_value())
        await asyncio.to_thread(revoke, core, token)
        with pytest.raises(UnauthenticatedError):
            await people.get(token.secret.get_secret_value())
        assert (await people.get(other.secret.get_secret_value())).principal.token_id == other.id

    asyncio.run(run())


def test_token_that_was_read_before_its_revocation_is_not_kept(core: Core) -> None:
    token, looked = token_of(core), LookUps(core)
    looked.go_on.clear()

    async def run() -> None:
        people = looked.people()
        early = asyncio.create_task(people.get(token.secret.get_secret_value()))
        await asyncio.to_thread(looked.has_read.wait, 20)
        await asyncio.to_thread(revoke, core, token)
        looked.go_on.set()
        await early  # its request came before the revocation was over
        with pytest.raises(UnauthenticatedError):
            await people.get(token.secret.get_secret_value())

    asyncio.run(run())


def test_token_that_another_process_revoked_is_refused_a_second_later(core: Core, elsewhere: Database) -> None:
    token, looked = token_of(core), LookUps(core)

    async def run() -> None:
        people = looked.people()
        await people.get(token.secret.get_secret_value())
        await asyncio.to_thread(revoke, core, token, elsewhere)
        looked.advance(1)
        with pytest.raises(UnauthenticatedError):
            await people.get(token.secret.get_secret_value())

    asyncio.run(run())


@pytest.mark.parametrize("set_back_s", [3600, 59.5, 0.5])
def test_clock_that_was_set_back_brings_no_token_back(core: Core, elsewhere: Database, set_back_s: float) -> None:
    token, looked = token_of(core), LookUps(core)

    async def run() -> None:
        people = looked.people()
        core.clock.advance(7200)
        await people.get(token.secret.get_secret_value())
        await asyncio.to_thread(revoke, core, token, elsewhere)
        for seconds, back_s in ((60, 0), (0, set_back_s), (1, 0)):
            looked.advance(seconds, set_back_s=back_s)
            with pytest.raises(UnauthenticatedError):
                await people.get(token.secret.get_secret_value())

    asyncio.run(run())


def test_clock_that_is_set_back_all_the_time_keeps_no_token_for_longer(core: Core) -> None:
    token, looked = token_of(core), LookUps(core)

    async def run() -> None:
        people = looked.people()
        for count in (1, 1, 2):
            await people.get(token.secret.get_secret_value())
            assert looked.count == count
            looked.advance(0.5, set_back_s=0.5)

    asyncio.run(run())


def test_token_that_is_forgotten_is_looked_up_again(core: Core) -> None:
    """Else each request of that second would note its use again, and each note is a write."""
    token, looked = token_of(core), LookUps(core)

    async def run() -> None:
        people = looked.people()
        assert (await people.get(token.secret.get_secret_value())).stale
        await core.database.write(lambda session: tokens.touch_token(session, token.id, core.clock.now()))
        people.forget(token.secret.get_secret_value())
        assert not (await people.get(token.secret.get_secret_value())).stale

    asyncio.run(run())


def test_a_token_made_while_its_tree_is_revoked_ends_too(core: Core, elsewhere: Database) -> None:
    root = token_of(core)
    child = made_by(core, root)
    is_made, go_on = threading.Event(), threading.Event()

    def make(session: Session) -> api.TokenCreated:
        made = make_by(session, core, child)
        session.flush()
        is_made.set()
        assert go_on.wait(20)
        return made

    with ThreadPoolExecutor(2) as threads:
        making = threads.submit(core.database.write_now, make)
        assert is_made.wait(20)
        revoking = threads.submit(revoke, core, root)
        if core.database.url.startswith("postgresql"):  # SQLite's one writer has it wait in its queue
            wait_until(lambda: elsewhere.read_now(_waits_for_a_lock), timeout_s=20, what="the revocation waits")
        go_on.set()
        made = making.result(30)
        revoking.result(30)

    secret = made.secret.get_secret_value()
    with pytest.raises(UnauthenticatedError):
        core.database.read_now(lambda session: identity.principal_of_token(session, secret, now=core.clock.now()))


def _waits_for_a_lock(session: Session) -> bool:
    return bool(session.execute(text("SELECT count(*) FROM pg_locks WHERE NOT granted")).scalar())


def made_by(core: Core, maker: api.TokenCreated) -> api.TokenCreated:
    return core.write(lambda session: make_by(session, core, maker))


def make_by(session: Session, core: Core, maker: api.TokenCreated) -> api.TokenCreated:
    return create_token(
        session,
        api.TokenCreate(name="heir", role="submitter"),
        project_id=core.project_id,
        by=api.PrincipalRef(name="tester"),
        now=core.clock.now(),
        maker=Maker(maker.id, 10),
    )
