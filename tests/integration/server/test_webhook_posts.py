"""What the loop posts to receivers on the loopback, which an operator allows here; and what it never connects to."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from drumline.contracts import api
from drumline.contracts.base import new_id
from drumline_server.base.settings import Settings
from drumline_server.scheduling.leadership import LeasedLeadership, SoleServer
from drumline_server.scheduling.webhooks import WebhookPosts
from drumline_server.services import access
from drumline_server.storage.database import Database
from support.core import TESTER, Core
from support.receiver import Receiver, endless, quiet_since, receiver, silence, status

ALLOWED = {"webhook_http": True, "webhook_networks": "127.0.0.0/24", "webhook_timeout_s": 2.0}


def settings(tmp_path: Path, **changes: Any) -> Settings:
    return Settings.model_validate({"data_dir": tmp_path, **ALLOWED, **changes})


def make(core: Core, url: str, chosen: Settings, **changes: Any) -> api.WebhookCreated:
    request = api.WebhookCreate.model_validate({"name": new_id("whk"), "url": url, **changes})
    return core.write(
        lambda session: access.create_webhook(
            session, core.project_id, request, chosen, by=TESTER, now=core.clock.now()
        )
    )


def end_a_run(core: Core) -> str:
    run = core.submit(resources={"replicas": 1}, wait_for_devices=True).id
    core.cancel(run)
    return run


def newest(core: Core, webhook: api.Webhook) -> api.WebhookDelivery:
    page = core.read(lambda session: access.list_deliveries(session, core.project_id, webhook.id, cursor=None, limit=1))
    return page.items[0]


@contextlib.asynccontextmanager
async def posting(core: Core, chosen: Settings, **changes: Any) -> AsyncIterator[WebhookPosts]:
    """The loop, which goes round whenever a post ends; a test begins the first round."""
    again = asyncio.Event()
    leadership = changes.pop("leadership", None) or SoleServer()
    posts = WebhookPosts(core.database, chosen, core.clock, leadership, again.set)
    for name, value in changes.items():
        setattr(posts, name, value)

    async def go_round() -> None:
        while True:
            if leadership.is_held():
                await posts.round()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    await again.wait()
            again.clear()

    task = asyncio.create_task(go_round())
    try:
        yield posts
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await posts.stop()


async def until(condition: Callable[[], object], what: str, timeout_s: float = 30) -> None:
    async with asyncio.timeout(timeout_s):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.01)
    assert condition(), what


def run_until(core: Core, chosen: Settings, condition: Callable[[], object], **changes: Any) -> None:
    """Has the loop post until something is so."""

    async def act() -> None:
        async with posting(core, chosen, **changes):
            await until(condition, "it is so")

    asyncio.run(act())


def is_tried(core: Core, webhook: api.Webhook, tries: int = 1) -> Callable[[], bool]:
    return lambda: newest(core, webhook).tries >= tries


@pytest.mark.both_databases
def test_an_alert_arrives_signed_and_is_noted_as_delivered(core: Core, tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    with receiver() as there:
        webhook = make(core, there.url, chosen)
        run = end_a_run(core)
        run_until(core, chosen, lambda: newest(core, webhook).state is api.DeliveryState.DELIVERED)
        (got,) = there.received

    assert got.is_signed_with(webhook.secret.get_secret_value())
    assert not got.is_signed_with("whsec_" + "AAAA" * 8)
    assert (got.path, got.headers["host"]) == ("/hook", f"127.0.0.1:{there.port}")
    assert int(got.headers["webhook-timestamp"]) == core.clock.now() // 1_000_000
    assert (got.alert["id"], got.alert["type"], got.alert["data"]["run"]) == (got.id, "run.cancelled", run)
    assert newest(core, webhook).status == 204


@pytest.mark.both_databases
def test_a_secret_that_was_replaced_signs_beside_the_new_one_until_its_time_is_over(core: Core, tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    with receiver() as there:
        made = make(core, there.url, chosen)
        kept = api.SecretReplace(keep_old_s=60)
        new = core.write(
            lambda session: access.replace_webhook_secret(
                session, (core.project_id, made.id), kept, by=TESTER, now=core.clock.now()
            )
        )
        for passed in (59, 1):
            core.clock.advance(passed)
            end_a_run(core)
            run_until(core, chosen, lambda: newest(core, made).state is api.DeliveryState.DELIVERED)
        during, after = there.received

    secrets = (new.secret.get_secret_value(), made.secret.get_secret_value())
    assert [during.is_signed_with(one) for one in secrets] == [True, True]
    assert [after.is_signed_with(one) for one in secrets] == [True, False]
    assert during.headers["webhook-signature"].startswith("v1,")
    assert len(during.headers["webhook-signature"].split(" ")) == 2


def test_a_receiver_that_fails_gets_the_same_again_until_it_takes_it(core: Core, tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    with receiver(status(500, "out of\norder\x00"), status(200)) as there:
        webhook = make(core, there.url, chosen)
        end_a_run(core)
        run_until(core, chosen, is_tried(core, webhook))
        failed = view(core, webhook)
        assert failed.last_error.startswith("answered 500: out of order")
        assert (failed.failures, failed.waiting) == (1, 1)
        run_until(core, chosen, lambda: quiet_since(there, 1, 0.3))  # not before its time

        core.clock.advance(5)
        run_until(core, chosen, is_tried(core, webhook, 2))
        first, second = there.received
    assert (first.id, first.body) == (second.id, second.body)
    mended = view(core, webhook)
    assert (mended.failures, mended.last_error, mended.waiting) == (0, "", 0)


def test_a_redirect_is_not_followed(core: Core, tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    with receiver() as elsewhere, receiver(status(307, location=elsewhere.url)) as there:
        webhook = make(core, there.url, chosen)
        end_a_run(core)
        run_until(core, chosen, is_tried(core, webhook))
        assert elsewhere.received == []
    assert newest(core, webhook).error == "answered 307; redirects are not followed"


@pytest.mark.parametrize(("code", "state", "error"), [(200, "delivered", ""), (503, "waiting", "answered 503: more")])
def test_an_answer_without_end_is_not_read(core: Core, tmp_path: Path, code: int, state: str, error: str) -> None:
    chosen = settings(tmp_path)
    with receiver(endless(code)) as there:
        webhook = make(core, there.url, chosen)
        end_a_run(core)
        run_until(core, chosen, is_tried(core, webhook))
    delivery = newest(core, webhook)
    assert (delivery.state, delivery.error[: len(error)]) == (state, error)
    assert len(delivery.error) <= 250


def test_receivers_that_never_answer_keep_no_other_waiting(core: Core, tmp_path: Path) -> None:
    """More of them than there are lanes, each with many alerts: the one that answers gets all of its own at once."""
    chosen = settings(tmp_path, webhooks_per_project=100, webhook_timeout_s=1.0)
    with receiver() as good, receiver() as dead:
        dead.answers[:] = [silence(dead)]
        silent = [make(core, dead.url, chosen) for _ in range(30)]
        for _ in range(3):
            end_a_run(core)
        run_until(core, chosen, lambda: all(view(core, each).failures for each in silent[:16]))
        make(core, good.url, chosen)
        for _ in range(5):
            end_a_run(core)
        core.clock.advance(3_600)  # all that failed is due again
        run_until(core, chosen, lambda: len(good.received) == 5)
    assert view(core, silent[0]).last_error == "gave no answer within 1 s"


@pytest.mark.both_databases
def test_a_receiver_that_fails_is_tried_once_for_all_that_waits_for_it_and_gets_all_once_it_takes_one(
    core: Core, tmp_path: Path
) -> None:
    chosen = settings(tmp_path)
    with receiver(status(500), status(500), status(500), status(204)) as there:
        webhook = make(core, there.url, chosen)
        for _ in range(3):
            end_a_run(core)
        run_until(core, chosen, lambda: view(core, webhook).failures == 1 and quiet_since(there, 1, 0.3))
        core.write(
            lambda session: access.test_webhook(session, core.project_id, webhook.id, by=TESTER, now=core.clock.now())
        )  # which goes at once
        run_until(core, chosen, lambda: view(core, webhook).failures == 2 and quiet_since(there, 2, 0.3))
        assert there.received[1].alert["type"] == "test"

        core.clock.advance(30)
        run_until(core, chosen, lambda: view(core, webhook).failures == 3 and quiet_since(there, 3, 0.3))
        core.clock.advance(120)
        run_until(core, chosen, lambda: view(core, webhook).waiting == 0)
    assert len({each.alert["data"]["run"] for each in there.received[3:]}) == len(there.received[3:]) == 3


def test_what_waited_for_its_whole_time_behind_others_is_given_up_with_the_next_failure(
    core: Core, tmp_path: Path
) -> None:
    chosen = settings(tmp_path, webhook_give_up_s=60)
    with receiver(status(500)) as there:
        webhook = make(core, there.url, chosen)
        for _ in range(3):
            end_a_run(core)
        run_until(core, chosen, lambda: view(core, webhook).failures == 1)
        core.clock.advance(60)
        run_until(core, chosen, lambda: view(core, webhook).waiting == 0)
        assert len(there.received) == 2


def view(core: Core, webhook: api.Webhook) -> api.Webhook:
    return core.read(lambda session: access.get_webhook(session, core.project_id, webhook.id))


@pytest.mark.parametrize(
    ("address", "word"), [("127.0.1.1", "the loopback's"), ("169.254.169.254", "credentials"), ("10.0.0.1", "private")]
)
def test_a_name_of_an_address_that_is_not_public_is_not_connected_to(
    core: Core, tmp_path: Path, address: str, word: str
) -> None:
    """Nor is any of its others: the name answers with a public one too."""
    chosen = settings(tmp_path)
    webhook = make(core, "https://hooks.example/x", chosen)
    end_a_run(core)
    run_until(core, chosen, is_tried(core, webhook), resolve=resolver(["8.8.8.8", address]))
    delivery = newest(core, webhook)
    assert word in delivery.error
    assert address in delivery.error
    assert "DRUMLINE_WEBHOOK_NETWORKS" in delivery.error


def resolver(*answers: Sequence[str]) -> Callable[[str, int], Awaitable[Sequence[str]]]:
    """Answers one after the other, the last one ever."""
    left = list(answers)

    async def resolve(host: str, port: int) -> Sequence[str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return resolve


def test_the_connection_goes_to_the_address_that_was_checked(core: Core, tmp_path: Path) -> None:
    """The name means another host a moment later, as in DNS rebinding: that one is checked too, and refused."""
    chosen = settings(tmp_path)
    with receiver() as there:
        webhook = make(core, f"http://hooks.example:{there.port}/x", chosen)
        end_a_run(core)
        resolve = resolver(["127.0.0.1"], ["127.0.1.1"])
        run_until(core, chosen, is_tried(core, webhook), resolve=resolve)
        assert newest(core, webhook).state is api.DeliveryState.DELIVERED
        assert there.received[0].headers["host"] == f"hooks.example:{there.port}"

        end_a_run(core)
        run_until(core, chosen, is_tried(core, webhook), resolve=resolve)
        assert len(there.received) == 1
    assert "127.0.1.1" in newest(core, webhook).error


def test_a_name_without_an_address_and_a_port_where_nobody_listens_are_named(core: Core, tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    with receiver() as there:
        nobody = there.url
    nameless = make(core, "http://nowhere.invalid/x", chosen)
    closed = make(core, nobody, chosen)
    end_a_run(core)
    run_until(core, chosen, lambda: is_tried(core, nameless)() and is_tried(core, closed)())
    assert newest(core, nameless).error.startswith("nowhere.invalid has no address")
    assert newest(core, closed).error.startswith("no connection to 127.0.0.1")


def test_nothing_is_posted_to_a_webhook_that_is_switched_off_until_it_is_on_again(core: Core, tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    with receiver() as there:
        webhook = make(core, there.url, chosen)
        end_a_run(core)
        switch(core, webhook, chosen, enabled=False)
        run_until(core, chosen, lambda: quiet_since(there, 0, 0.3))
        switch(core, webhook, chosen, enabled=True)
        run_until(core, chosen, lambda: there.received)


def switch(core: Core, webhook: api.Webhook, chosen: Settings, *, enabled: bool) -> None:
    patch = api.WebhookPatch(enabled=enabled)
    core.write(
        lambda session: access.change_webhook(
            session, (core.project_id, webhook.id), patch, chosen, by=TESTER, now=core.clock.now()
        )
    )


@pytest.mark.parametrize(("code", "state"), [(204, "delivered"), (500, "given_up")])
def test_a_test_is_posted_once(core: Core, tmp_path: Path, code: int, state: str) -> None:
    chosen = settings(tmp_path)
    with receiver(status(code)) as there:
        webhook = make(core, there.url, chosen)
        core.write(
            lambda session: access.test_webhook(session, core.project_id, webhook.id, by=TESTER, now=core.clock.now())
        )
        run_until(core, chosen, is_tried(core, webhook))
        (got,) = there.received
    assert got.alert["type"] == "test"
    assert (newest(core, webhook).state, newest(core, webhook).next_try_at) == (state, None)


def test_a_server_that_lost_the_loops_while_it_posted_leaves_it_to_the_next(
    postgres_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At least once: the next one posts it again, under the same id."""
    caplog.set_level(logging.INFO)
    with receiver() as there, contextlib.closing(Database(postgres_url, pool_size=4)) as database:
        core, chosen = Core(database), settings(tmp_path)
        webhook = make(core, there.url, chosen)
        end_a_run(core)
        asyncio.run(_post_and_be_overtaken(core, chosen, there, lambda: "is noted by another server" in caplog.text))
        assert newest(core, webhook).tries == 0
        run_until(core, chosen, is_tried(core, webhook))
        first, second = there.received
        assert first.id == second.id
        assert newest(core, webhook).state is api.DeliveryState.DELIVERED


async def _post_and_be_overtaken(core: Core, chosen: Settings, there: Receiver, is_refused: Callable[[], bool]) -> None:
    old, new = (LeasedLeadership(core.database, lease_s=5) for _ in range(2))
    assert await old.renew()
    taken = threading.Event()

    def answer_late(request: BaseHTTPRequestHandler) -> None:
        taken.wait(30)
        status(204)(request)

    there.answers[:] = [answer_late, status(204)]
    async with posting(core, chosen, leadership=old):
        await until(lambda: there.received, "the first post is under way")
        await old.resign()
        assert await new.renew()
        taken.set()
        await until(is_refused, "the old one may not note it")
    await new.resign()
