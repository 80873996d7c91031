"""Alerts of runs for webhooks: each is stored in the transaction that it tells of, and posted by a loop afterwards.

A delivery waits until its address takes it (DELIVERED) or its time is over (GIVEN_UP). The loop posts first and then
notes what came of it, so that a server that dies in between posts once more, under the same id.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, CursorResult, and_, bindparam, case, delete, or_, select, update
from sqlalchemy.orm import Session

from drumline.contracts.api import Alert, AlertKind, AlertNonFinite, AlertReason, AlertRun, AlertTest, DeliveryState
from drumline.contracts.api.webhooks import MAX_MESSAGE
from drumline.contracts.base import from_micros, new_id
from drumline.contracts.problems import ProblemCode
from drumline.contracts.reasons import EndReason
from drumline.contracts.states import RunState
from drumline_server.base.errors import DrumlineError
from drumline_server.storage.history import record_event
from drumline_server.storage.models import Project, Run, Webhook, WebhookDelivery
from drumline_server.storage.models.base import insert_or_ignore
from drumline_server.storage.notifications import WEBHOOKS, announce, run_list

_MICROS = 1_000_000
_OF_END = {
    RunState.SUCCEEDED: AlertKind.SUCCEEDED,
    RunState.FAILED: AlertKind.FAILED,
    RunState.CANCELLED: AlertKind.CANCELLED,
}
_TEST = "test"
AT_ONCE = 0
"""When a test is due: before all else, also while its webhook rests."""
_AGAIN_AFTER_S = (5, 30, 120, 600, 1_800, 3_600, 7_200, 14_400)
"""After each failed try; after the last one as after that."""
_RESTS_S = {1: 5, 2: 30, 3: 120}
_LONGEST_REST_S = 600
"""So long a webhook rests after so many failed tries, whatever waits for it: a dead receiver costs one try for all."""
_KEPT_S = 7 * 86_400
"""For so long a delivery that is over is shown."""
_PART = 500
_WANTED = select(Webhook.id, Webhook.alerts).where(
    Webhook.project_id == bindparam("project"),
    Webhook.enabled,
    Webhook.deleted_at.is_(None),
    or_(Webhook.job.is_(None), Webhook.job == bindparam("job")),
)


def require_free_name(session: Session, project_id: str, name: str) -> None:
    """Raises DrumlineError (CONFLICT) where a webhook of the project has that name: people call them by it."""
    # Of two that are named at once, the second waits here, and then sees the first. Rows that refer to the project
    # go on being made.
    session.execute(select(Project.id).where(Project.id == project_id).with_for_update(key_share=True))
    named = (Webhook.project_id == project_id, Webhook.name == name, Webhook.deleted_at.is_(None))
    taken = session.scalar(select(Webhook.id).where(*named).order_by(Webhook.id).limit(1))
    if taken is not None:
        raise DrumlineError(
            ProblemCode.CONFLICT,
            f"The project has a webhook {name!r} already: {taken}.",
            hint="Change or delete that one, or choose another name.",
            context={"webhook": taken, "name": name},
        )


def record_end(session: Session, run: Run, *, now: int) -> None:
    """Tells that a run has ended, as its row shows it."""
    _record(session, run, _OF_END[RunState(run.state)], "end", now=now)


def record_non_finite(session: Session, run: Run, *, now: int) -> None:
    """Tells that a reduction of a run was NaN or infinite, the first one of the run."""
    _record(session, run, AlertKind.NON_FINITE, "non_finite", now=now)


def record_stall(session: Session, run: Run, *, now: int) -> None:
    """Tells that a run stands still, and its stream; nothing where that is known. The run is locked."""
    if run.stalled_at is not None:
        return
    run.stalled_at = now
    record_event(session, run.id, "stalled", {"step": run.step}, now=now, attempt_id=run.attempt_id)
    announce(session, run_list(run.id))
    _record(session, run, AlertKind.STALLED, f"stalled:{run.attempt_id}:{run.step}", now=now)


def record_test(session: Session, webhook: Webhook, *, now: int) -> str:
    """Has a test posted to a webhook; returns the delivery's id."""
    delivery_id = new_id("whd")
    data = AlertTest(project=webhook.project_id, webhook=webhook.id)
    row = {**_row(delivery_id, webhook.id, _TEST, data, now), "due_at": AT_ONCE}
    insert_or_ignore(session, WebhookDelivery, [{**row, "run_id": None, "cause": delivery_id}])
    announce(session, WEBHOOKS)
    return delivery_id


def _record(session: Session, run: Run, kind: AlertKind, cause: str, *, now: int) -> None:
    found = session.execute(_WANTED, {"project": run.project_id, "job": run.job_name})
    wanted = [webhook_id for webhook_id, alerts in found if kind in alerts]
    if not wanted:
        return
    data = _view(run)
    rows = [_row(new_id("whd"), webhook_id, kind, data, now) for webhook_id in wanted]
    insert_or_ignore(
        session, WebhookDelivery, [{**row, "run_id": run.id, "cause": f"{run.id}:{cause}"} for row in rows]
    )
    announce(session, WEBHOOKS)


def _row(
    delivery_id: str, webhook_id: str, kind: str, data: AlertRun | AlertTest, now: int
) -> dict[str, Any]:  # Any: columns
    body = Alert.model_validate({"id": delivery_id, "type": kind, "timestamp": from_micros(now), "data": data})
    return {
        "id": delivery_id,
        "webhook_id": webhook_id,
        "project_id": data.project,
        "alert": kind,
        "body": body.model_dump_json(),
        "state": DeliveryState.WAITING,
        "tries": 0,
        "created_at": now,
        "due_at": now,
        "error": "",
    }


def _view(run: Run) -> AlertRun:
    reason = None
    if run.reason_code is not None:
        reason = AlertReason(code=EndReason(run.reason_code), message=run.reason_message[:MAX_MESSAGE])
    return AlertRun.model_validate(
        {
            "project": run.project_id,
            "run": run.id,
            "job": run.job_name,
            "version": run.version_number,
            "batch": run.batch_id,
            "attempt": run.attempt_id,
            "owner": run.submitted_by,
            "state": run.state,
            "reason": reason,
            "step": run.step,
            "total_steps": run.total_steps,
            "non_finite": run.first_non_finite and _view_non_finite(run.first_non_finite),
            "created_at": run.created_at,
            "started_at": run.started_at,
            "ended_at": run.ended_at,
        }
    )


def _view_non_finite(first: Mapping[str, Any]) -> AlertNonFinite:  # Any: JSON of api.NonFinite
    replicas = tuple(one["replica"] for one in first["replicas"])
    return AlertNonFinite(name=first["name"], step=first["step"], replicas=replicas)


@dataclass(frozen=True, slots=True)
class PostResult:
    """What came of one try: the status that the address answered, and why it failed; empty where it took it."""

    status: int | None
    error: str = ""


def settle_delivery(
    session: Session, delivery: WebhookDelivery, result: PostResult, *, give_up_s: float, now: int
) -> bool:
    """Notes what came of a try, guarded by the tries that `delivery` shows; False where another server was first."""
    is_over, values = _after(delivery, result, give_up_s, now)
    ours = (WebhookDelivery.id == delivery.id, WebhookDelivery.tries == delivery.tries)
    change = update(WebhookDelivery).where(*ours, WebhookDelivery.state == DeliveryState.WAITING)
    done = session.execute(change.values(tries=delivery.tries + 1, status=result.status, error=result.error, **values))
    assert isinstance(done, CursorResult)
    if done.rowcount != 1:
        return False
    told = {"last_error": result.error, "last_error_at": now, "failures": Webhook.failures + 1}
    if not result.error:
        told = {"last_error": "", "delivered_at": now, "failures": 0}
    session.execute(update(Webhook).where(Webhook.id == delivery.webhook_id).values(**told))
    if result.error:
        _give_up_what_is_late(session, delivery.webhook_id, result, give_up_s, now)
    return is_over


def due_until(now: int) -> ColumnElement[int]:
    """By when deliveries of a webhook are due to be tried now: all of them, or only tests while it rests."""
    rest_s = case(_RESTS_S, value=Webhook.failures, else_=_LONGEST_REST_S)
    rests = and_(Webhook.failures > 0, Webhook.last_error_at + rest_s * _MICROS > now)
    return case((rests, AT_ONCE), else_=now)


def _give_up_what_is_late(session: Session, webhook_id: str, result: PostResult, give_up_s: float, now: int) -> None:
    """What had its time while others of its webhook were tried: a part of it each time."""
    waiting = (WebhookDelivery.webhook_id == webhook_id, WebhookDelivery.state == DeliveryState.WAITING)
    late = select(WebhookDelivery.id).where(*waiting, WebhookDelivery.created_at + int(give_up_s * _MICROS) <= now)
    over = {"state": DeliveryState.GIVEN_UP, "ended_at": now, "status": result.status, "error": result.error}
    session.execute(update(WebhookDelivery).where(WebhookDelivery.id.in_(late.limit(_PART))).values(**over))


def _after(
    delivery: WebhookDelivery, result: PostResult, give_up_s: float, now: int
) -> tuple[bool, dict[str, int | str]]:
    if not result.error:
        return True, {"state": DeliveryState.DELIVERED, "ended_at": now}
    last_at = delivery.created_at + int(give_up_s * _MICROS)
    if now >= last_at or delivery.alert == _TEST:  # who tests looks at the answer
        return True, {"state": DeliveryState.GIVEN_UP, "ended_at": now}
    wait_s = _AGAIN_AFTER_S[min(delivery.tries, len(_AGAIN_AFTER_S) - 1)]
    return False, {"due_at": min(now + wait_s * _MICROS, last_at)}


def forget_deliveries(session: Session, *, now: int) -> bool:
    """Deletes some deliveries that were over a week ago, and of webhooks that are gone; whether more are left."""
    old = select(WebhookDelivery.id).where(WebhookDelivery.ended_at <= now - _KEPT_S * _MICROS).limit(_PART)
    gone = select(Webhook.id).where(Webhook.deleted_at.is_not(None))
    of_gone = select(WebhookDelivery.id).where(WebhookDelivery.webhook_id.in_(gone)).limit(_PART)
    left: Sequence[str] = [*session.scalars(old), *session.scalars(of_gone)]
    if left:
        session.execute(delete(WebhookDelivery).where(WebhookDelivery.id.in_(left)))
        return True
    session.execute(delete(Webhook).where(Webhook.deleted_at.is_not(None)))
    return False
