"""Webhooks: addresses of a project's people that alerts of its runs are posted to, and what became of each post.

Requests are signed as https://www.standardwebhooks.com says: `webhook-id`, `webhook-timestamp`, `webhook-signature`.
"""

from enum import StrEnum
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints

from drumline.contracts.api.access import PrincipalRef
from drumline.contracts.base import (
    AtMost,
    AttemptId,
    BatchId,
    Contract,
    ProjectId,
    Reply,
    RunId,
    Secret,
    Timestamp,
    Title,
    WebhookDeliveryId,
    WebhookId,
)
from drumline.contracts.reasons import EndReason
from drumline.contracts.spec import JobName
from drumline.contracts.states import RunState

MAX_URL = 2_000
MAX_MESSAGE = 2_000
MAX_KEEP_OLD_S = 7 * 86_400.0
"""The longest that a secret which was replaced is good: a week."""


class AlertKind(StrEnum):
    """What an alert tells of a run."""

    SUCCEEDED = "run.succeeded"
    FAILED = "run.failed"
    CANCELLED = "run.cancelled"
    NON_FINITE = "run.non_finite"
    """Its first reduction that was NaN or infinite; once for a run."""
    STALLED = "run.stalled"
    """Its steps got no further for long, or an attempt of it was ended as hung."""


def _webhook_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"is no address: {error}") from None
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise ValueError("is no address to post to; write one such as https://hooks.example/drumline")
    if parts.username is not None or parts.password is not None:
        raise ValueError("has a user or password in it; put a secret into the path, or check the signature instead")
    if parts.fragment:
        raise ValueError("has a fragment (#...), which is never sent; leave it out")
    if port == 0:
        raise ValueError("has port 0, on which nobody listens")
    return url


WebhookUrl = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_URL, pattern=r"^[\x21-\x7e]+$"), AfterValidator(_webhook_url)
]
WebhookName = Annotated[Title, StringConstraints(min_length=1, max_length=100)]
Alerts = Annotated[tuple[AlertKind, ...], Field(min_length=1), AtMost(len(AlertKind))]


class WebhookCreate(Contract):
    """Body of `POST /webhooks`."""

    name: WebhookName
    url: WebhookUrl
    alerts: Alerts = tuple(AlertKind)
    job: JobName | None = None
    """Alerts of this job's runs only; None for all."""


class WebhookPatch(Contract):
    """Body of `PATCH /webhooks/{webhook_id}`: what is left out stays."""

    name: WebhookName | None = None
    url: WebhookUrl | None = None
    alerts: Alerts | None = None
    job: JobName | Literal[""] | None = None
    """The empty text stands for all jobs."""
    enabled: bool | None = None
    """A webhook that is switched off gets no new alerts, and those that wait for it wait on."""


class SecretReplace(Contract):
    """Body of `POST /webhooks/{webhook_id}:replace-secret`."""

    keep_old_s: Annotated[float, Field(ge=0, le=MAX_KEEP_OLD_S)] = 86_400.0
    """So long posts are signed with the secret before as well, so that a receiver can change over; 0: not at all."""


class Webhook(Reply):
    """A webhook as it can be listed: never its secret."""

    id: WebhookId
    name: str
    url: str
    alerts: tuple[AlertKind, ...]
    job: str | None
    enabled: bool
    created_at: Timestamp
    made_by: PrincipalRef = PrincipalRef()
    waiting: int
    """Deliveries that are still to be taken, up to 1000."""
    failures: int
    """Tries that failed since one was taken."""
    delivered_at: Timestamp | None
    """When the address last took one."""
    last_error: str
    """What the last failed try failed of, until a delivery is taken again."""
    last_error_at: Timestamp | None
    old_secret_until: Timestamp | None = None
    """Until then posts are signed with the secret before the newest one too; None where there is none."""


class WebhookCreated(Webhook):
    """The one answer that holds the secret: of a webhook that was made, or whose secret was replaced."""

    secret: Secret


class DeliveryState(StrEnum):
    """Where the delivery of an alert is."""

    WAITING = "waiting"
    """To be posted, for the first time or again."""
    DELIVERED = "delivered"
    """Taken: answered with 2xx."""
    GIVEN_UP = "given_up"
    """Tried until its time was over."""


class AlertReason(Reply):
    """Why a run ended."""

    code: EndReason
    message: Annotated[str, Field(max_length=MAX_MESSAGE)]


class AlertNonFinite(Reply):
    """The first reduction that was NaN or infinite."""

    name: str
    step: int
    replicas: tuple[int, ...]
    """The first 16 whose part was."""


class AlertRun(Reply):
    """The run that an alert tells of, as of then."""

    project: ProjectId
    run: RunId
    job: str
    version: int
    batch: BatchId | None
    attempt: AttemptId | None
    owner: str | None
    state: RunState
    reason: AlertReason | None
    step: int | None
    total_steps: int | None
    non_finite: AlertNonFinite | None
    created_at: Timestamp
    started_at: Timestamp | None
    ended_at: Timestamp | None


class AlertTest(Reply):
    """What a test of a webhook posts in place of a run."""

    project: ProjectId
    webhook: WebhookId


class Alert(Reply):
    """The body of a webhook's request. Fields may be added, and none of these goes or changes while `format` is 1."""

    format: Literal[1] = 1
    id: WebhookDeliveryId
    """Of the delivery, as in the header `webhook-id`: what comes again has the same."""
    type: AlertKind | Literal["test"]
    timestamp: Timestamp
    """When it happened; each try has its own `webhook-timestamp`."""
    data: AlertRun | AlertTest


class WebhookDelivery(Reply):
    """One alert to one webhook. It is posted until it is taken or its time is over, always under the same id."""

    id: WebhookDeliveryId
    alert: AlertKind | Literal["test"]
    run: RunId | None
    """None for a test."""
    state: DeliveryState
    tries: int
    created_at: Timestamp
    next_try_at: Timestamp | None
    """None once it is over."""
    ended_at: Timestamp | None
    status: int | None
    """What the address answered last."""
    error: str
    """Why the last try failed; empty where it did not."""
    body: Alert
    """What is posted."""
