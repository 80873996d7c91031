"""Alerts of runs: stored with what they tell of, for the webhooks that want them, each once; tried until an end."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import new_id
from drumline.contracts.reasons import EndReason
from drumline.contracts.states import RunState
from drumline_server.base.errors import DrumlineError
from drumline_server.base.settings import Settings
from drumline_server.lifecycle.alerts import PostResult, forget_deliveries, settle_delivery
from drumline_server.services import access, run_lists
from drumline_server.services.run_changes import Cancellation, cancel
from drumline_server.storage.models import WebhookDelivery
from support.attempts import again
from support.core import TESTER, Core, Member

pytestmark = pytest.mark.both_databases

MINUTE = 60.0
DAY_S = 86_400.0


def make(core: Core, project_id: str | None = None, **changes: Any) -> str:
    """A webhook of the project; returns its id."""
    request = api.WebhookCreate.model_validate({"name": new_id("whk"), "url": "https://hooks.example/x", **changes})
    project = project_id or core.project_id
    made = core.write(
        lambda session: access.create_webhook(session, project, request, Settings(), by=TESTER, now=core.clock.now())
    )
    return made.id


def change(core: Core, webhook_id: str, **changes: Any) -> None:
    patch = api.WebhookPatch.model_validate(changes)
    core.write(
        lambda session: access.change_webhook(
            session, (core.project_id, webhook_id), patch, Settings(), by=TESTER, now=core.clock.now()
        )
    )


def stored(core: Core, webhook_id: str) -> list[WebhookDelivery]:
    """Its deliveries, oldest first."""

    def read(session: Session) -> list[WebhookDelivery]:
        query = select(WebhookDelivery).where(WebhookDelivery.webhook_id == webhook_id).order_by(WebhookDelivery.id)
        rows = list(session.scalars(query))
        session.expunge_all()
        return rows

    return core.read(read)


def told(core: Core, webhook_id: str) -> list[str]:
    return [row.alert for row in stored(core, webhook_id)]


def running(core: Core, **changes: Any) -> tuple[str, Member]:
    """A run of one host that has begun, and its member."""
    worker = core.add_worker(devices=1)
    run = core.submit(resources={"replicas": 1}, **changes).id
    core.schedule()
    return run, worker.take().start()


def step(member: Member, steps: int, steps_per_s: float | None = 1.0) -> None:
    member.send(member.event("progress", step=steps, total_steps=100, steps_per_s=steps_per_s))


def test_the_end_of_a_run_is_told_to_those_who_want_it_and_to_no_others(core: Core) -> None:
    wants = make(core)
    other_job = make(core, job="mnist")
    same_job = make(core, job="digits", alerts=["run.failed"])
    other_kind = make(core, alerts=["run.succeeded"])
    switched_off = make(core)
    change(core, switched_off, enabled=False)
    elsewhere = make(core, core.add_project("elsewhere"))

    run, member = running(core)
    step(member, 7)
    member.end(EndReason.PROGRAM_ERROR, message="ValueError: x" + "y" * 5_000, exit_code=1)

    assert told(core, wants) == told(core, same_job) == ["run.failed"]
    assert not any(told(core, each) for each in (other_job, other_kind, switched_off, elsewhere))
    (delivery,) = stored(core, wants)
    body = api.Alert.model_validate_json(delivery.body)
    assert isinstance(body.data, api.AlertRun)
    assert (body.id, body.type, body.format) == (delivery.id, "run.failed", 1)
    assert (body.data.run, body.data.job, body.data.state, body.data.step) == (run, "digits", RunState.FAILED, 7)
    assert body.data.reason is not None
    assert body.data.reason.code is EndReason.PROGRAM_ERROR
    assert len(delivery.body) < 4_000


@pytest.mark.parametrize(
    ("reason", "kind"), [(EndReason.COMPLETED, "run.succeeded"), (EndReason.CANCELLED, "run.cancelled")]
)
def test_each_end_has_an_alert_of_its_own(core: Core, reason: EndReason, kind: str) -> None:
    webhook = make(core)
    _, member = running(core)
    member.end(reason)
    assert told(core, webhook) == [kind]


def test_an_alert_is_stored_with_what_it_tells_of_or_not_at_all(core: Core) -> None:
    webhook = make(core)
    run = core.submit(resources={"replicas": 1}, wait_for_devices=True).id

    def cancel_and_fail(session: Session) -> None:
        cancel(session, Cancellation(core.project_id, run, TESTER, api.CancelRequest()), now=core.clock.now())
        raise InterruptedError

    with pytest.raises(InterruptedError):
        core.write(cancel_and_fail)
    assert (core.run(run).state, told(core, webhook)) == (RunState.QUEUED, [])
    core.cancel(run)
    assert (core.run(run).state, told(core, webhook)) == (RunState.CANCELLED, ["run.cancelled"])


def test_the_first_nan_of_a_run_is_told_once_however_many_attempts_have_some(core: Core) -> None:
    webhook = make(core, alerts=["run.non_finite"])
    worker = core.add_worker(devices=1)
    run = core.submit(resources={"replicas": 1}, retries={"infrastructure": 9}).id
    core.schedule()
    member = worker.take().start()
    for call in (3, 4):
        send_nan(member, "loss", call)
    member = again(core, worker, run, member)
    send_nan(member, "loss", 1)

    (delivery,) = stored(core, webhook)
    data = api.Alert.model_validate_json(delivery.body).data
    assert isinstance(data, api.AlertRun)
    assert data.non_finite == api.AlertNonFinite(name="loss", step=3, replicas=(0,))


def send_nan(member: Member, name: str, call: int) -> None:
    replicas = [{"replica": 0, "nan_count": 1, "inf_count": 0}]
    fields = {"op": "mean", "shape": (4,), "replicas": replicas, "result_count": 1}
    member.send(member.event("non_finite", name=name, step=call, call=call, **fields))


def pass_time(core: Core, member: Member, seconds: float) -> None:
    """The host is heard all the while."""
    for _ in range(int(seconds // 30)):
        core.clock.advance(30)
        member.worker.beat()
        core.reap()


def test_a_run_that_stands_still_is_told_once_and_again_when_it_stops_once_more(core: Core) -> None:
    webhook = make(core, alerts=["run.stalled"])
    run, member = running(core)
    step(member, 7)
    pass_time(core, member, 9 * MINUTE)
    assert (told(core, webhook), core.run(run).stalled_at) == ([], None)
    pass_time(core, member, 4 * MINUTE)
    assert told(core, webhook) == ["run.stalled"]
    assert core.run(run).stalled_at is not None
    assert stalled(core) == [run]
    assert [event.body for event in core.events(run) if event.kind == "stalled"] == [{"step": 7}]

    step(member, 8)
    assert core.run(run).stalled_at is None
    assert stalled(core) == []
    pass_time(core, member, 12 * MINUTE)
    assert told(core, webhook) == ["run.stalled"] * 2


def stalled(core: Core) -> list[str]:
    """What the first page names."""
    return [run.id for run in core.read(lambda session: run_lists.list_stalled(session, core.project_id, 5))]


def test_a_run_of_slow_steps_stands_still_only_after_ten_of_them(core: Core) -> None:
    webhook = make(core, alerts=["run.stalled"])
    _, member = running(core)
    step(member, 1, steps_per_s=1 / 120)
    pass_time(core, member, 19 * MINUTE)
    assert told(core, webhook) == []
    pass_time(core, member, 2 * MINUTE)
    assert told(core, webhook) == ["run.stalled"]


def test_a_run_that_stands_still_before_it_has_a_rate_is_told_by_what_its_steps_took(core: Core) -> None:
    """A hundred seconds went into two steps, most of them into building: ten usual ones are 500 s at most."""
    webhook = make(core, alerts=["run.stalled"])
    _, member = running(core)
    pass_time(core, member, 100)
    step(member, 2, steps_per_s=None)
    pass_time(core, member, 9 * MINUTE)
    assert told(core, webhook) == []
    pass_time(core, member, 2 * MINUTE)
    assert told(core, webhook) == ["run.stalled"]


def test_a_run_before_its_first_step_does_not_stand_still(core: Core) -> None:
    webhook = make(core, alerts=["run.stalled"])
    _, member = running(core)
    pass_time(core, member, 30 * MINUTE)
    assert told(core, webhook) == []


def test_an_attempt_that_hung_is_told_as_stalled_and_the_run_that_fails_of_it_too(core: Core) -> None:
    webhook = make(core)
    _, member = running(core, retries={"infrastructure": 0})
    step(member, 7)
    member.end(EndReason.HANG, message="no step within 60 s")
    assert told(core, webhook) == ["run.stalled", "run.failed"]


def try_once(core: Core, delivery: WebhookDelivery, error: str = "answered 500") -> None:
    result = PostResult(None if error else 204, error)
    core.write(lambda session: settle_delivery(session, delivery, result, give_up_s=DAY_S, now=core.clock.now()))


def test_a_delivery_is_tried_ever_more_seldom_and_given_up_after_a_day(core: Core) -> None:
    webhook = make(core)
    running(core)[1].end()
    waits = []
    while (row := stored(core, webhook)[0]).state == "waiting":
        core.clock.micros = row.due_at
        try_once(core, row)
        waits.append((stored(core, webhook)[0].due_at - row.due_at) / 1_000_000)
    assert waits[:6] == [5, 30, 120, 600, 1_800, 3_600]
    assert (row.state, row.error, row.due_at - row.created_at) == ("given_up", "answered 500", DAY_S * 1_000_000)
    shown = core.read(lambda session: access.get_webhook(session, core.project_id, webhook))
    assert (shown.failures, shown.last_error, shown.waiting) == (len(waits), "answered 500", 0)


def test_of_two_servers_that_post_the_same_delivery_one_notes_it(core: Core) -> None:
    webhook = make(core)
    running(core)[1].end()
    (seen,) = stored(core, webhook)
    try_once(core, seen, error="")
    try_once(core, seen)
    (row,) = stored(core, webhook)
    assert (row.state, row.tries, row.error) == ("delivered", 1, "")


def test_a_new_address_is_tried_at_once(core: Core) -> None:
    webhook = make(core)
    running(core)[1].end()
    try_once(core, stored(core, webhook)[0])
    assert stored(core, webhook)[0].due_at > core.clock.now()
    change(core, webhook, url="https://hooks.example/y")
    assert stored(core, webhook)[0].due_at == core.clock.now()


def test_what_is_over_is_forgotten_after_a_week_and_what_waits_is_not(core: Core) -> None:
    webhook, gone = make(core), make(core)
    for _ in range(2):
        core.cancel(core.submit(resources={"replicas": 1}, wait_for_devices=True).id)
    first, _ = stored(core, webhook)
    try_once(core, first, error="")
    core.write(lambda s: access.delete_webhook(s, core.project_id, gone, by=TESTER, now=core.clock.now()))
    core.clock.advance(8 * DAY_S)
    while core.write(lambda session: forget_deliveries(session, now=core.clock.now())):
        pass
    assert [row.state for row in stored(core, webhook)] == ["waiting"]
    assert stored(core, gone) == []


def test_of_two_webhooks_of_a_name_made_at_once_one_is_refused(core: Core) -> None:
    request = api.WebhookCreate.model_validate({"name": "ops", "url": "https://hooks.example/x"})
    both_made = threading.Barrier(2)

    def create(session: Session) -> str:
        made = access.create_webhook(session, core.project_id, request, Settings(), by=TESTER, now=core.clock.now())
        with suppress(threading.BrokenBarrierError):  # the other one waits for the end of this transaction
            both_made.wait(0.5)
        return made.id

    def attempt(_: int) -> str:
        try:
            return core.write(create)
        except DrumlineError as error:
            return str(error.context["webhook"])

    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(attempt, range(2))
    assert first == second
