"""Signing in and out, tokens, and what this server is: its version, whether it serves, what Prometheus reads of it.
And the webhooks of the project: whom alerts of its runs are posted to; addresses may hold secrets, so operators see
them.
"""

from typing import Annotated

from fastapi import APIRouter, Body, Request, Response, status
from fastapi.responses import PlainTextResponse
from sqlalchemy import text
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import TokenId, WebhookId
from drumline.contracts.worker_api import PROTOCOL_VERSION
from drumline_server.base.callers import cookie_name
from drumline_server.base.errors import DrumlineError, ForbiddenError, UnauthenticatedError
from drumline_server.base.settings import VERSION
from drumline_server.http.dependencies import (
    DEFAULT_PAGE,
    AdminDep,
    AppDep,
    CursorText,
    GuardedRoute,
    Limit,
    OperatorDep,
    ReaderDep,
    api_router,
)
from drumline_server.http.layers import session_cookie
from drumline_server.services import access, identity
from drumline_server.services.overview import TEXT_TYPE

CAPABILITIES = ("cancel", "logs", "metrics", "placement", "reductions", "stream")

router = api_router()
health = APIRouter(include_in_schema=False, route_class=GuardedRoute)
"""Beside the API."""


@router.post("/sessions", tags=["access"], status_code=201)
async def create_session(*, body: api.LoginRequest, request: Request, response: Response, app: AppDep) -> api.Session:
    """Signs a browser in with a one-time code or a token: sets the session cookie."""
    address, now = request.client.host if request.client else "", app.clock.now()
    good = await app.database.read(lambda session: identity.is_good(session, body, now=now))
    if not good:
        app.logins.check(address, now)  # only now: a good credential is never refused for what others did
    try:
        opened = await app.database.write(
            lambda session: identity.sign_in(session, body, app.settings, client=address, now=now)
        )
    except UnauthenticatedError:
        app.logins.count_failure(address, now)
        raise
    response.set_cookie(
        cookie_name(secure=app.settings.behind_proxy),
        opened.cookie,
        max_age=max(0, (opened.expires_at - now) // identity.SECOND),
        path="/",
        secure=app.settings.behind_proxy,
        httponly=True,
        samesite="lax",
    )
    return opened.session


@router.get("/sessions/current", tags=["access"])
async def get_current_session(request: Request, principal: ReaderDep, app: AppDep) -> api.Session:
    """Who is signed in."""
    cookie = session_cookie(request)
    return await app.database.read(
        lambda session: identity.describe_session(session, principal, app.settings, cookie, now=app.clock.now())
    )


@router.delete("/sessions/current", tags=["access"], status_code=204)
async def delete_current_session(response: Response, principal: ReaderDep, app: AppDep) -> None:
    """Signs the browser out: ends the session on the server and drops the cookie."""
    await app.database.write(lambda session: identity.sign_out(session, principal, now=app.clock.now()))
    response.delete_cookie(
        cookie_name(secure=app.settings.behind_proxy),
        path="/",
        secure=app.settings.behind_proxy,
        httponly=True,
        samesite="lax",
    )


@router.post("/login-codes", tags=["access"], status_code=201)
async def create_login_code(principal: AdminDep, app: AppDep) -> api.LoginCode:
    """A one-time code that signs a browser in: open `{address}/login#code=...`. Only for tokens, not sessions."""
    if principal.token_id is None:  # a stolen cookie must not outlive its session by opening others
        raise ForbiddenError("A browser session cannot make login codes.", hint="Use an admin token.")
    return await app.database.write(
        lambda session: identity.create_login_code(session, principal, app.settings, now=app.clock.now())
    )


@router.post("/tokens", tags=["access"], status_code=201)
async def create_token(body: Annotated[api.TokenCreate, Body()], principal: AdminDep, app: AppDep) -> api.TokenCreated:
    """Makes a token, which ends with the one that asks. The answer is the only place that ever holds its secret."""
    if body.kind == "enr" and "expires_in_s" not in body.model_fields_set:
        body = body.model_copy(update={"expires_in_s": app.settings.enrolment_s})

    owner = principal.owner_token_id
    if owner is None:
        raise ForbiddenError("This session was opened without a token, and can make none.", hint="Sign in again.")
    maker = access.Maker(owner, app.settings.tokens_per_token)

    def create(session: Session) -> api.TokenCreated:
        now = app.clock.now()
        if not identity.is_still_good(session, principal, idle_s=app.settings.session_idle_s, now=now):
            raise UnauthenticatedError
        return access.create_token(
            session, body, project_id=principal.project_id, by=principal.ref, now=now, maker=maker
        )

    return await app.database.write(create)


@router.get("/tokens", tags=["access"])
async def list_tokens(
    principal: AdminDep, app: AppDep, cursor: CursorText = None, limit: Limit = DEFAULT_PAGE
) -> api.Page[api.Token]:
    """Tokens of the project, newest first, without their secrets."""
    return await app.database.read(
        lambda session: access.list_tokens(session, principal.project_id, cursor=cursor, limit=limit)
    )


@router.delete("/tokens/{token_id}", tags=["access"], status_code=204)
async def revoke_token(token_id: TokenId, principal: AdminDep, app: AppDep) -> None:
    """Ends a token, its browser sessions and every token that it made: at once here, in a second at other servers."""
    await app.database.write(
        lambda session: access.revoke_token(
            session, principal.project_id, token_id, by=principal.ref, now=app.clock.now()
        )
    )


@router.get("/version", tags=["server"])
async def get_server_version(principal: ReaderDep) -> api.Version:
    """What this server is and can do."""
    return api.Version(version=VERSION, protocol=PROTOCOL_VERSION, capabilities=CAPABILITIES)


@health.get("/healthz")
async def healthz() -> PlainTextResponse:
    """The process answers."""
    return PlainTextResponse("ok\n")


@health.get("/readyz")
async def readyz(app: AppDep) -> PlainTextResponse:
    """The database and the store of bundles answer too, so requests can be served."""
    try:
        await app.database.read(lambda session: session.execute(text("SELECT 1")).scalar())
        await app.blobs.check()
    except DrumlineError as error:
        return PlainTextResponse(f"{error.detail}\n", 503)
    return PlainTextResponse("ready\n")


@health.get("/metrics")
async def metrics(principal: ReaderDep, app: AppDep) -> Response:
    """Figures for Prometheus; needs a token like everything else. Fleet-wide numbers, of no single project."""
    said = await app.figures.read_text(
        app.database,
        now=app.clock.now(),
        streams=app.live.clients,
        connections=app.connections.count,
        notifications=app.notifier.counts() if app.notifier is not None else {},
    )
    return Response(said, media_type=TEXT_TYPE)


webhooks_router = api_router(tags=["webhooks"])


@webhooks_router.post("/webhooks", status_code=status.HTTP_201_CREATED)
async def create_webhook(body: api.WebhookCreate, principal: OperatorDep, app: AppDep) -> api.WebhookCreated:
    """Makes a webhook. The answer is the only place that ever shows the secret which its posts are signed with."""
    return await app.database.write(
        lambda session: access.create_webhook(
            session, principal.project_id, body, app.settings, by=principal.ref, now=app.clock.now()
        )
    )


@webhooks_router.get("/webhooks")
async def list_webhooks(
    principal: OperatorDep, app: AppDep, cursor: CursorText = None, limit: Limit = DEFAULT_PAGE
) -> api.Page[api.Webhook]:
    """Webhooks of the project, oldest first, without their secrets."""
    return await app.database.read(
        lambda session: access.list_webhooks(session, principal.project_id, cursor=cursor, limit=limit)
    )


@webhooks_router.get("/webhooks/{webhook_id}")
async def get_webhook(webhook_id: WebhookId, principal: OperatorDep, app: AppDep) -> api.Webhook:
    """One webhook, with its last error."""
    return await app.database.read(lambda session: access.get_webhook(session, principal.project_id, webhook_id))


@webhooks_router.patch("/webhooks/{webhook_id}")
async def change_webhook(
    webhook_id: WebhookId, body: api.WebhookPatch, principal: OperatorDep, app: AppDep
) -> api.Webhook:
    """Changes a webhook, or switches it off or on. With a new address, what waits is posted at once."""
    return await app.database.write(
        lambda session: access.change_webhook(
            session, (principal.project_id, webhook_id), body, app.settings, by=principal.ref, now=app.clock.now()
        )
    )


@webhooks_router.delete("/webhooks/{webhook_id}", status_code=status.HTTP_204_NO_CONTENT)
async def delete_webhook(webhook_id: WebhookId, principal: OperatorDep, app: AppDep) -> Response:
    """Deletes a webhook with its deliveries."""
    await app.database.write(
        lambda session: access.delete_webhook(
            session, principal.project_id, webhook_id, by=principal.ref, now=app.clock.now()
        )
    )
    return Response(status_code=status.HTTP_204_NO_CONTENT)


@webhooks_router.post("/webhooks/{webhook_id}:replace-secret")
async def replace_webhook_secret(
    webhook_id: WebhookId, body: api.SecretReplace, principal: OperatorDep, app: AppDep
) -> api.WebhookCreated:
    """Gives a webhook a new secret, which is in this answer only; posts have a signature of the one before too for a
    while.
    """
    return await app.database.write(
        lambda session: access.replace_webhook_secret(
            session, (principal.project_id, webhook_id), body, by=principal.ref, now=app.clock.now()
        )
    )


@webhooks_router.post("/webhooks/{webhook_id}:test", status_code=status.HTTP_202_ACCEPTED)
async def test_webhook(webhook_id: WebhookId, principal: OperatorDep, app: AppDep) -> api.WebhookDelivery:
    """Has a test posted, once; its delivery tells what came of it."""
    return await app.database.write(
        lambda session: access.test_webhook(
            session, principal.project_id, webhook_id, by=principal.ref, now=app.clock.now()
        )
    )


@webhooks_router.get("/webhooks/{webhook_id}/deliveries")
async def list_webhook_deliveries(
    webhook_id: WebhookId, principal: OperatorDep, app: AppDep, cursor: CursorText = None, limit: Limit = DEFAULT_PAGE
) -> api.Page[api.WebhookDelivery]:
    """Deliveries of a webhook, newest first, with what each failed of; those that are over are kept for a week."""
    return await app.database.read(
        lambda session: access.list_deliveries(session, principal.project_id, webhook_id, cursor=cursor, limit=limit)
    )
