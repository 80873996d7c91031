"""Webhooks of the project: addresses that alerts of its runs are posted to."""

import time
from collections.abc import Iterator, Sequence
from urllib.parse import quote

from drumline._transport import Body, Transport, iterate_pages
from drumline._validation import refuse, require_id, typed_errors
from drumline.contracts import api

_ASK_AGAIN_S = 0.2
_ALL = tuple(api.AlertKind)


class Webhooks:
    """The webhooks of a project, as `client.webhooks`. All of it needs the role operator.

    for webhook in client.webhooks:
        print(webhook.name, webhook.last_error)
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def __iter__(self) -> Iterator[api.Webhook]:
        """Each webhook, oldest first."""
        return iterate_pages(self._transport, "/webhooks", api.Webhook)

    def create(
        self, name: str, url: str, *, alerts: Sequence[api.AlertKind | str] = _ALL, job: str | None = None
    ) -> api.WebhookCreated:
        """Makes a webhook that is told of runs, of one `job` or of all. `secret` is in this answer only.

        `alerts` are some of run.succeeded, run.failed, run.cancelled, run.non_finite and run.stalled.
        Raises OptionError; InvalidRequestError for an address that the server never posts to, ConflictError for the
        name of another webhook.
        """
        _refuse_text(alerts)
        with typed_errors():
            request = api.WebhookCreate.model_validate({"name": name, "url": url, "alerts": [*alerts], "job": job})
        return self._transport.post("/webhooks", api.WebhookCreated, Body.of(request))

    def change(
        self,
        webhook_id: str,
        *,
        name: str | None = None,
        url: str | None = None,
        alerts: Sequence[api.AlertKind | str] | None = None,
        job: str | None = None,
        enabled: bool | None = None,
    ) -> api.Webhook:
        """Changes a webhook; what is None stays, and `job=""` stands for all jobs.

        Raises OptionError, NotFoundError, ConflictError for the name of another one.
        """
        _refuse_text(alerts)
        given = {"name": name, "url": url, "alerts": alerts and [*alerts], "job": job, "enabled": enabled}
        with typed_errors():
            change = api.WebhookPatch.model_validate(given)
        self._transport.send("PATCH", _path(webhook_id), Body.of(change), repeatable=True)
        return self._transport.get(_path(webhook_id), api.Webhook)

    def replace_secret(self, webhook_id: str, *, keep_old_s: float = 86_400.0) -> api.WebhookCreated:
        """Gives a webhook a new secret, which is in this answer only.

        For `keep_old_s` seconds, at most a week, posts have a signature of the secret before too, so that a receiver
        can change over; 0: not at all. NotFoundError, OptionError.
        """
        with typed_errors():
            body = Body.of(api.SecretReplace(keep_old_s=keep_old_s))
        return self._transport.post(f"{_path(webhook_id)}:replace-secret", api.WebhookCreated, body)

    def delete(self, webhook_id: str) -> None:
        """Deletes a webhook with its deliveries. NotFoundError."""
        self._transport.send("DELETE", _path(webhook_id))

    def test(self, webhook_id: str, *, wait_s: float = 15.0) -> api.WebhookDelivery:
        """Has a test posted, and waits up to `wait_s` seconds for what came of it. NotFoundError."""
        posted = self._transport.post(f"{_path(webhook_id)}:test", api.WebhookDelivery)
        until = time.monotonic() + wait_s
        while posted.state is api.DeliveryState.WAITING and time.monotonic() < until:
            time.sleep(_ASK_AGAIN_S)
            posted = next((each for each in self.deliveries(webhook_id) if each.id == posted.id), posted)
        return posted

    def deliveries(self, webhook_id: str) -> Iterator[api.WebhookDelivery]:
        """What was posted to a webhook and is still to be, newest first; a week of it. NotFoundError."""
        return iterate_pages(self._transport, f"{_path(webhook_id)}/deliveries", api.WebhookDelivery)


def _path(webhook_id: str) -> str:
    known = require_id(webhook_id, "webhook_id", "the id of a webhook, such as whk_01J...")
    return f"/webhooks/{quote(known, safe='')}"


def _refuse_text(alerts: object) -> None:
    if isinstance(alerts, str):
        refuse("alerts", alerts, 'pass a list, such as ["run.failed"]')
