"""Webhooks of the project: whom alerts of its runs are posted to. Addresses may hold secrets, so operators see them."""

from fastapi import Response, status

from drumline.contracts import api
from drumline.contracts.ids import WebhookId
from drumline_server.http.dependencies import DEFAULT_PAGE, AppDep, CursorText, Limit, OperatorDep, api_router
from drumline_server.services import webhooks

router = api_router(tags=["webhooks"])


@router.post("/webhooks", status_code=status.HTTP_201_CREATED)
async def create_webhook(body: api.WebhookCreate, principal: OperatorDep, app: AppDep) -> api.WebhookCreated:
    """Makes a webhook. The answer is the only place that ever shows the secret which its posts are signed with."""
    return await app.database.write(
        lambda session: webhooks.create_webhook(
            session, principal.project_id, body, app.settings, by=principal.ref, now=app.clock.now()
        )
    )


@router.get("/webhooks")
async def list_webhooks(
    principal: OperatorDep, app: AppDep, cursor: CursorText = None, limit: Limit = DEFAULT_PAGE
) -> api.Page[api.Webhook]:
    """Webhooks of the project, oldest first, without their secrets."""
    return await app.database.read(
        lambda session: webhooks.list_webhooks(session, principal.project_id, cursor=cursor, limit=limit)
    )


@router.get("/webhooks/{webhook_id}")
async def get_webhook(webhook_id: WebhookId, principal: OperatorDep, app: AppDep) -> api.Webhook:
    """One webhook, with its last error."""
    return await app.database.read(lambda session: webhooks.get_webhook(session, principal.project_id, webhook_id))


@router.patch("/webhooks/{webhook_id}")
async def change_webhook(
    webhook_id: WebhookId, body: api.WebhookPatch, principal: OperatorDep, app: AppDep
) -> api.Webhook:
    """Changes a webhook, or switches it off or on. With a new address, what waits is posted at once."""
    return await app.database.write(
        lambda session: webhooks.change_webhook(
            session, (principal.project_id, webhook_id), body, app.settings, by=principal.ref, now=app.clock.now()
        )
    )


@router.delete("/webhooks/{webhook_id}", status_code=status.HTTP_204_NO_CONTENT)
async def delete_webhook(webhook_id: WebhookId, principal: OperatorDep, app: AppDep) -> Response:
    """Deletes a webhook with its deliveries."""
    await app.database.write(
        lambda session: webhooks.delete_webhook(
            session, principal.project_id, webhook_id, by=principal.ref, now=app.clock.now()
        )
    )
    return Response(status_code=status.HTTP_204_NO_CONTENT)


@router.post("/webhooks/{webhook_id}:test", status_code=status.HTTP_202_ACCEPTED)
async def test_webhook(webhook_id: WebhookId, principal: OperatorDep, app: AppDep) -> api.WebhookDelivery:
    """Has a test posted, once; its delivery tells what came of it."""
    return await app.database.write(
        lambda session: webhooks.test_webhook(
            session, principal.project_id, webhook_id, by=principal.ref, now=app.clock.now()
        )
    )


@router.get("/webhooks/{webhook_id}/deliveries")
async def list_webhook_deliveries(
    webhook_id: WebhookId, principal: OperatorDep, app: AppDep, cursor: CursorText = None, limit: Limit = DEFAULT_PAGE
) -> api.Page[api.WebhookDelivery]:
    """Deliveries of a webhook, newest first, with what each failed of; those that are over are kept for a week."""
    return await app.database.read(
        lambda session: webhooks.list_deliveries(session, principal.project_id, webhook_id, cursor=cursor, limit=limit)
    )
