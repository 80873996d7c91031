"""Posts alerts to webhooks: signed, outside of every transaction, and only to addresses that webhooks may reach.

One delivery of a webhook is under way at a time, webhooks whose last try failed have lanes of their own, and rest after
it whatever else waits for them: what does not answer keeps no other waiting. A name is looked up for each try, each of
its addresses is checked, and the connection is made to the very address that was checked: what the name means a moment
later makes no difference.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sqlalchemy import ColumnElement, and_, literal_column, select
from sqlalchemy.orm import Session

from drumline.contracts.base import make_storable
from drumline_server.base.errors import InvalidRequestError, LeadershipLostError
from drumline_server.base.settings import VERSION, Clock, Settings
from drumline_server.lifecycle.alerts import PostResult, due_until, settle_delivery
from drumline_server.scheduling.leadership import Leadership
from drumline_server.storage.database import Database
from drumline_server.storage.models import Webhook, WebhookDelivery

if TYPE_CHECKING:
    import httpx2

log = logging.getLogger(__name__)

_MICROS = 1_000_000
_PROMPT_LANES, _SLOW_LANES = 16, 8
"""Posts under way at once, to webhooks that took their last one and to those that did not."""
_CONNECT_S = 5.0
_MOST_ADDRESSES = 3
"""Of a name so many are tried."""
_MOST_LOOKUPS = 64
"""Look-ups of names that may hang at once, each in a thread."""
_EXCERPT_BYTES = 200
"""Of an answer that is no 2xx so much is read and shown."""
_REST_S = 5.0
"""After a result that could not be stored, before the webhook is posted to again."""
SECRET_PREFIX = "whsec_"


class _PostRefusedError(Exception):
    """An address that webhooks may not reach, or a name without one."""


Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host name, as text. Raises OSError."""


@dataclass(frozen=True, slots=True)
class Post:
    """What is posted where. `body` is sent as it is."""

    url: str
    secrets: tuple[str, ...]
    """Each of them signs it: the newest first."""
    delivery_id: str
    body: bytes


@dataclass(frozen=True, slots=True)
class PostTerms:
    """What an operator allows webhooks."""

    networks: tuple[str, ...]
    timeout_s: float

    @classmethod
    def of(cls, settings: Settings) -> "PostTerms":
        """As the settings have it."""
        return cls(settings.webhook_networks, settings.webhook_timeout_s)


_NOT_PUBLIC = {
    "the loopback's": ("127.0.0.0/8", "::1/128"),
    "one where clouds keep credentials": ("169.254.0.0/16", "fe80::/10", "168.63.129.16/32", "192.0.0.0/24"),
    "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"),
    "one that stands for another": ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"),
}
"""Named in refusals; whatever else is not global is refused too."""


def why_refused(address: str, networks: Sequence[str]) -> str:
    """Why webhooks may not reach an address: a word for its kind; empty where they may."""
    known: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    if isinstance(known, IPv6Address) and known.ipv4_mapped is not None:
        known = known.ipv4_mapped
    if any(known in ip_network(each, strict=False) for each in networks):
        return ""
    for kind, members in _NOT_PUBLIC.items():
        if any(known in ip_network(each) for each in members):
            return kind
    is_compatible = known in IPv6Network("::/96")
    return "not public" if not known.is_global or known.is_multicast or known.is_reserved or is_compatible else ""


def require_reachable(url: str, settings: Settings) -> None:
    """Raises InvalidRequestError for an address that is never posted to. Names are looked up with each post only."""
    parts = urlsplit(url)
    if parts.scheme == "http" and not settings.webhook_http:
        raise InvalidRequestError(
            "url", "begins with http://", hint="Use https://, or have an operator set DRUMLINE_WEBHOOK_HTTP=1."
        )
    try:
        address = str(ip_address(parts.hostname or ""))
    except ValueError:
        return
    if kind := why_refused(address, settings.webhook_networks):
        raise InvalidRequestError(
            "url", f"{address} is {kind}", hint="An operator can allow it with DRUMLINE_WEBHOOK_NETWORKS."
        )


def sign(secret: str, delivery_id: str, timestamp_s: int, body: bytes) -> str:
    """The header `webhook-signature`: HMAC-SHA256 over id, time and body, as Standard Webhooks 1.0 has it."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError("the secret of a webhook is whsec_ and base64") from error
    signed = f"{delivery_id}.{timestamp_s}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


_lookups = threading.BoundedSemaphore(_MOST_LOOKUPS)


async def resolve(host: str, port: int) -> Sequence[str]:
    """Asks the system in a thread of its own: one that hangs holds up neither other look-ups nor the server's end."""
    if not _lookups.acquire(blocking=False):
        raise OSError(f"{_MOST_LOOKUPS} look-ups of names hang")
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Sequence[str]] = loop.create_future()

    def tell(found: Sequence[str], error: Exception | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(found)
        else:
            answer.set_exception(error)

    def look_up() -> None:
        found: list[str] = []
        failed: Exception | None = None
        try:
            found = [str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        except (OSError, UnicodeError) as error:
            failed = error if isinstance(error, OSError) else OSError(str(error))
        finally:
            _lookups.release()
        with suppress(RuntimeError):  # the loop is closed: the server has ended
            loop.call_soon_threadsafe(tell, found, failed)

    threading.Thread(target=look_up, name="webhook-lookup", daemon=True).start()
    return await answer


@cache
def _tls() -> ssl.SSLContext:
    """Made once, with the first post: httpx2 and the certificates take longer to load than the server has to start."""
    import httpx2

    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs each address, which may hold a secret
    return httpx2.create_ssl_context()


async def post(what: Post, terms: PostTerms, resolve: Resolve, *, now_s: int) -> PostResult:
    """One try, in `terms.timeout_s` at most. Raises nothing that a receiver or a network can bring about."""
    try:
        async with asyncio.timeout(terms.timeout_s):
            return await _post(what, terms, resolve, now_s)
    except TimeoutError:
        return PostResult(None, f"gave no answer within {terms.timeout_s:g} s")
    except _PostRefusedError as error:
        return PostResult(None, str(error))


async def _post(what: Post, terms: PostTerms, resolve: Resolve, now_s: int) -> PostResult:
    context = await asyncio.to_thread(_tls)
    import httpx2

    try:
        url = httpx2.URL(what.url)
    except httpx2.InvalidURL as error:
        raise _PostRefusedError(f"{what.url} is no address to post to: {error}") from error
    host, port = url.raw_host.decode(), url.port or (443 if url.scheme == "https" else 80)
    addresses = await _checked_addresses(host, port, terms, resolve)
    headers = {
        "host": url.netloc.decode(),
        "content-type": "application/json",
        "user-agent": f"Drumline/{VERSION}",
        "accept-encoding": "identity",
        "webhook-id": what.delivery_id,
        "webhook-timestamp": str(now_s),
        "webhook-signature": " ".join(sign(one, what.delivery_id, now_s, what.body) for one in what.secrets),
    }
    timeout = httpx2.Timeout(None, connect=min(_CONNECT_S, terms.timeout_s))
    # A client for each post: a connection kept for one host of an address must not serve another of the same.
    async with httpx2.AsyncClient(verify=context, trust_env=False, follow_redirects=False, timeout=timeout) as client:
        failed = ""
        for address in addresses[:_MOST_ADDRESSES]:
            request = client.build_request(
                "POST",
                url.copy_with(host=address),
                content=what.body,
                headers=headers,
                extensions={"sni_hostname": host},
            )
            try:
                response = await client.send(request, stream=True)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failed = f"no connection to {address} port {port}: {_told(error)}"
                continue
            except httpx2.HTTPError as error:
                return PostResult(None, f"the answer broke off: {_told(error)}")
            return await _judge(response)
    return PostResult(None, failed)


def _told(error: Exception) -> str:
    return make_text(str(error)) or type(error).__name__


async def _checked_addresses(host: str, port: int, terms: PostTerms, resolve: Resolve) -> list[str]:
    """Every address of the name, once all of them were found to be reachable for webhooks. Raises _PostRefusedError."""
    try:
        found = list(dict.fromkeys(await resolve(host, port)))
    except OSError as error:
        raise _PostRefusedError(f"{host} has no address: {error.strerror or error}") from error
    for address in found:
        if kind := why_refused(address, terms.networks):
            raise _PostRefusedError(
                f"{host} has the address {address}, which is {kind}; "
                "an operator can allow it with DRUMLINE_WEBHOOK_NETWORKS"
            )
    if not found:
        raise _PostRefusedError(f"{host} has no address")
    return found


async def _judge(response: "httpx2.Response") -> PostResult:
    """Taken with any 2xx, of which nothing more is read; else the beginning of the answer is the error."""
    try:
        if response.is_success:
            return PostResult(response.status_code)
        if response.has_redirect_location:
            return PostResult(response.status_code, f"answered {response.status_code}; redirects are not followed")
        excerpt = await _excerpt(response)
        return PostResult(response.status_code, f"answered {response.status_code}{excerpt and ': '}{excerpt}")
    finally:
        await response.aclose()


async def _excerpt(response: "httpx2.Response") -> str:
    import httpx2

    read = b""
    with suppress(httpx2.HTTPError):
        async for piece in response.aiter_raw(_EXCERPT_BYTES):
            read += piece
            if len(read) >= _EXCERPT_BYTES:
                break
    return make_text(read[:_EXCERPT_BYTES].decode("utf-8", "replace"))


def make_text(foreign: str) -> str:
    """Foreign text as one line that the database can hold."""
    return str(make_storable(" ".join(foreign.split())))[:500]


@dataclass(frozen=True, slots=True)
class _Due:
    """A delivery to be tried, with its webhook as of now."""

    delivery: WebhookDelivery
    url: str
    secrets: tuple[str, ...]
    failures: int


def due_deliveries(session: Session, *, now: int) -> list[_Due]:
    """Of each webhook that is switched on and does not rest the delivery that is due first."""
    # By the words of the index: SQLite uses no partial index for a state that is a bound parameter.
    waiting: ColumnElement[bool] = literal_column("webhook_delivery.state = 'waiting'")
    is_due = and_(waiting, WebhookDelivery.due_at <= now)
    if session.scalar(select(WebhookDelivery.id).where(is_due).limit(1)) is None:
        return []  # as nearly always, which this asks each second
    first = (
        select(WebhookDelivery.id)
        .where(WebhookDelivery.webhook_id == Webhook.id, waiting, WebhookDelivery.due_at <= due_until(now))
        .order_by(WebhookDelivery.due_at, WebhookDelivery.id)
        .limit(1)
        .correlate(Webhook)
        .scalar_subquery()
    )
    on = (Webhook.enabled, Webhook.deleted_at.is_(None))
    columns = (Webhook.url, Webhook.secret, Webhook.old_secret, Webhook.old_secret_until, Webhook.failures)
    rows = session.execute(select(*columns, first.label("first")).where(*on)).all()
    about = {
        row.first: (row.url, _secrets(row.secret, row.old_secret, row.old_secret_until, now), row.failures)
        for row in rows
        if row.first is not None
    }
    found = select(WebhookDelivery).where(WebhookDelivery.id.in_(about)).order_by(WebhookDelivery.due_at)
    deliveries = session.scalars(found).all()
    session.expunge_all()
    return [_Due(each, *about[each.id]) for each in deliveries]


def _secrets(secret: str, old: str | None, until: int | None, now: int) -> tuple[str, ...]:
    return (secret, old) if old and until is not None and now < until else (secret,)


class WebhookPosts:
    """The posts that are under way. `round` begins those that are due and does not wait for them."""

    def __init__(
        self, database: Database, settings: Settings, clock: Clock, leadership: Leadership, wake: Callable[[], None]
    ) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock
        self._leadership = leadership
        self._wake = wake
        self._terms = PostTerms.of(settings)
        self._prompt: dict[str, asyncio.Task[None]] = {}
        self._slow: dict[str, asyncio.Task[None]] = {}
        self._ended: set[str] = set()
        self.resolve: Resolve = resolve

    async def round(self) -> None:
        """Begins to post what is due and has room. Each that ends calls for another round."""
        now = self._clock.now()
        self._ended.clear()
        for due in await self._database.read(lambda session: due_deliveries(session, now=now)):
            webhook_id = due.delivery.webhook_id
            lane, room = (self._slow, _SLOW_LANES) if due.failures else (self._prompt, _PROMPT_LANES)
            # One that ended after it was read may be read as due still: it would be posted a second time.
            if webhook_id in {*self._prompt, *self._slow, *self._ended} or len(lane) >= room:
                continue
            task = lane[webhook_id] = asyncio.create_task(self._deliver(due), name=f"drumline-post-{webhook_id}")
            task.add_done_callback(partial(self._end, lane, webhook_id))

    async def stop(self) -> None:
        """Ends those under way; they are posted again by whoever runs the loops next."""
        tasks = [*self._prompt.values(), *self._slow.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _end(self, lane: dict[str, "asyncio.Task[None]"], webhook_id: str, _: "asyncio.Task[None]") -> None:
        del lane[webhook_id]
        self._ended.add(webhook_id)
        self._wake()

    async def _deliver(self, due: _Due) -> None:
        delivery = due.delivery
        what = Post(due.url, due.secrets, delivery.id, delivery.body.encode())
        try:
            result = await post(what, self._terms, self.resolve, now_s=self._clock.now() // _MICROS)
        except Exception as error:
            log.exception("the delivery %s could not be posted", delivery.id)
            result = PostResult(None, f"the server failed to post it: {type(error).__name__}")

        def note(session: Session) -> None:
            self._leadership.guard(session)
            settle_delivery(
                session, delivery, result, give_up_s=self._settings.webhook_give_up_s, now=self._clock.now()
            )

        try:
            await self._database.write(note)
        except LeadershipLostError:
            log.info("the delivery %s is noted by another server", delivery.id)
        except Exception:
            log.exception("what came of the delivery %s could not be stored; it is posted again", delivery.id)
            await asyncio.sleep(_REST_S)
