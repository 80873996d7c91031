"""The server's worker endpoints: requests, the waits between them, and the keys with which members speak.

Without its key nobody, not even with this host's token, speaks for a member. The agent makes a key before it claims the
member, and sends it with all that it says of it. No other process gets it: the shim, from which the program's process
is forked, has no use for it, as what it spools is sent by the agent.
"""

import asyncio
import hashlib
import os
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import httpx2
from pydantic import BaseModel, SecretStr, ValidationError

from drumline.contracts.api import PieceAddress
from drumline.contracts.artifacts import ArtifactUpload
from drumline.contracts.events import MemberAck, MemberEnd
from drumline.contracts.plans import PlanReport, PlanTaken
from drumline.contracts.problems import Problem, ProblemCode
from drumline.contracts.records import RECORDS_MEDIA_TYPE, frame
from drumline.contracts.retention import ExpiredRuns, StoredRuns
from drumline.contracts.stacks import StacksReport
from drumline.contracts.worker_api import (
    KEY_HEADER,
    OLDEST_PROTOCOL,
    PROTOCOL_VERSION,
    Claim,
    Claimed,
    DeviceCheckReports,
    Enroll,
    Enrolled,
    Heartbeat,
    HeartbeatReply,
    Register,
    Registered,
)
from drumline_worker.host.rundir import sync_directory

_PREFIX = "/api/v1/worker"
_TIMEOUT = httpx2.Timeout(15.0, connect=5.0)
_STORING = httpx2.Timeout(600.0, connect=5.0)
"""The server hashes the whole of an artifact, and may bring it into an object store, before it answers."""
_TEMPORARY = frozenset({408, 425, 429, 500, 502, 503, 504, 507})
Answer = TypeVar("Answer", bound=BaseModel)


class UnreachableError(Exception):
    """No answer, or one that says to come again later."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RefusedError(Exception):
    """The server said no. `problem` is its answer."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.status} {problem.code}: {problem.detail}")
        self.problem = problem
        self.status = problem.status

    @property
    def member_is_gone(self) -> bool:
        """The member is fenced off, over or unknown: nothing that we say about it counts any more."""
        gone = self.problem.code in (ProblemCode.FENCED, ProblemCode.ALREADY_TERMINAL) or self.status in (404, 410)
        return gone and not self._names_the_incarnation

    @property
    def worker_is_unknown(self) -> bool:
        """The server does not know this incarnation (any more): register again."""
        return self.status in (401, 403) or (self.status == HTTPStatus.CONFLICT and not self.member_is_gone)

    @property
    def newest_incarnation(self) -> str | None:
        """The incarnation that the server knows instead of the one that we named."""
        return str(self.problem.context["current"]) if self._names_the_incarnation else None

    @property
    def older_protocol(self) -> int | None:
        """Of a registration: what the server speaks, where it is older and this worker knows that protocol too."""
        spoken = self.problem.context.get("protocol")
        return spoken if isinstance(spoken, int) and OLDEST_PROTOCOL <= spoken < PROTOCOL_VERSION else None

    @property
    def versions_differ(self) -> str | None:
        """Of a registration: which side is to be upgraded, where they do not understand each other; else None."""
        if "protocol" in self.problem.context:
            return f"{self.problem.detail} {self.problem.hint}"
        if self.status == HTTPStatus.UNPROCESSABLE_ENTITY or self.problem.code == ProblemCode.CONFLICT:
            return (
                f"The server is older than this worker (drumline {version('drumline')}) and does not understand its "
                f"registration ({self}). Upgrade the server first: it also serves workers of the version before."
            )
        return None

    @property
    def superseded(self) -> bool:
        """The incarnation that we named had to make way for another."""
        return self.problem.context.get("superseded") is True

    @property
    def _names_the_incarnation(self) -> bool:
        """The worker is fenced off, and not just the member: a newer incarnation is registered, ours or another's."""
        return "incarnation" in self.problem.context


class BundleMismatchError(Exception):
    """What the server sent is not the bundle that was asked for."""


_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LENGTH = 43
"""Characters of 256 bits."""


class MemberKeys:
    """One file (0600) for each member, in a directory (0700) beside those that programs are told of."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[str, SecretStr] = {}
        self._held: set[str] = set()

    def make(self, member: str) -> SecretStr:
        """The member's key, durable before it is returned: an agent that restarts continues with it. Raises OSError."""
        known = self.find(member)
        if known is not None:
            return known
        key = _new_key()
        draft = self._directory / f".{member}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self._directory / member)
        sync_directory(self._directory)
        self._known[member] = SecretStr(key)
        return self._known[member]

    def find(self, member: str) -> SecretStr | None:
        """The key that was made; None for a member that was claimed without, or whose key the disk has lost."""
        if member not in self._known:
            try:
                self._known[member] = SecretStr((self._directory / member).read_text())
            except FileNotFoundError:
                return None
        return self._known[member]

    def hold(self, member: str) -> None:
        """Its claim may have been taken, which no answer told: it is claimed again, and only with the same key."""
        self._held.add(member)

    def forget(self, member: str) -> None:
        """Nothing more will be said of it, unless it is to be claimed again."""
        if member in self._held:
            self._held.discard(member)
            return
        self._known.pop(member, None)
        (self._directory / member).unlink(missing_ok=True)

    def keep_only(self, members: set[str]) -> None:
        """Deletes the keys of all others, which an earlier agent has left."""
        for file in self._directory.iterdir():
            if file.name not in members:
                file.unlink()


def _new_key() -> str:
    value, digits = int.from_bytes(os.urandom(32)), []
    for _ in range(_LENGTH):
        value, digit = divmod(value, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(digits)


FIRST_S = 0.2
CAP_S = 10.0


class Backoff:
    """Doubles from 0.2 s up to 10 s, with jitter, so that many workers do not return all at once."""

    def __init__(self, first_s: float = FIRST_S, cap_s: float = CAP_S) -> None:
        self._first_s = first_s
        self._cap_s = cap_s
        self._next_s = first_s

    def reset(self) -> None:
        """It worked: the next failure waits shortly again."""
        self._next_s = self._first_s

    def next_s(self) -> float:
        """Seconds to wait now."""
        wait_s = self._next_s
        self._next_s = min(2 * self._next_s, self._cap_s)
        return wait_s * random.uniform(0.8, 1.2)


class Api:
    """One HTTP client with the worker's token, and the keys of its members."""

    def __init__(self, server: str, trust_env: bool, keys: MemberKeys) -> None:
        self._keys = keys
        self._trust_env = trust_env
        self._client = httpx2.AsyncClient(base_url=server, timeout=_TIMEOUT, trust_env=trust_env)

    def use_token(self, token: SecretStr) -> None:
        """The worker's own token, for everything but enrolment."""
        self._client.headers["authorization"] = f"Bearer {token.get_secret_value()}"

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    async def enroll(self, body: Enroll, token: SecretStr) -> Enrolled:
        """Trades a single-use token for an identity."""
        headers = {"authorization": f"Bearer {token.get_secret_value()}"}
        return await self._post("/enroll", body.model_dump_json().encode(), Enrolled, headers)

    async def register(self, body: Register) -> Registered:
        """Starts a new incarnation."""
        return await self._post("/register", _json(body, "slice"), Registered)

    async def heartbeat(self, body: Heartbeat, answer_s: float) -> HeartbeatReply:
        """Says that the worker lives; brings news. UnreachableError after `answer_s` without an answer."""
        try:
            async with asyncio.timeout(answer_s):
                return await self._post("/heartbeat", _json(body, "protocol"), HeartbeatReply)
        except TimeoutError:
            raise UnreachableError(f"no answer in {answer_s:g} s") from None

    async def claim(self, member: str, body: Claim) -> Claimed:
        """Takes a member; refused when somebody was first or it is over."""
        return await self._post(f"/members/{member}/claim", _json(body, "key"), Claimed)

    async def send_events(self, member: str, head: str, events: Sequence[bytes]) -> MemberAck:
        """Sends an EventBatch whose events are JSON already; `head` holds its other fields, without brackets."""
        body = frame(b"{" + head.encode() + b"}", events)
        headers = {"content-type": RECORDS_MEDIA_TYPE, **self._key_of(member)}
        return await self._post(f"/members/{member}/events", body, MemberAck, headers)

    async def end(self, member: str, body: MemberEnd) -> MemberAck:
        """Says how the member ended."""
        return await self._post(f"/members/{member}/end", _end_json(body), MemberAck, self._key_of(member))

    async def report_stacks(self, member: str, body: StacksReport) -> None:
        """Says where a member stands."""
        await self._send(f"/members/{member}/stacks", body.model_dump_json().encode(), self._key_of(member))

    async def report_plan(self, plan: str, body: PlanReport) -> None:
        """Says what a probe found, or why it found nothing."""
        await self._post(f"/plans/{plan}/report", body.model_dump_json().encode(), PlanTaken)

    async def expire_checkpoints(self, body: StoredRuns) -> ExpiredRuns:
        """Of which runs nothing need be kept any more."""
        return await self._post("/checkpoints", body.model_dump_json().encode(), ExpiredRuns)

    async def report_device_checks(self, body: DeviceCheckReports) -> None:
        """Says what probes of quarantined devices found."""
        await self._send("/probes", body.model_dump_json().encode())

    async def fetch_bundle(self, sha256: str, target: Path) -> None:
        """Writes the bundle to `target`: from the server, or from the object store to which the server sends us.

        Raises BundleMismatchError when its content is another.
        """
        digest = hashlib.sha256()
        try:
            async with self._open_bundle(sha256) as response:
                with target.open("wb") as file:
                    async for chunk in response.aiter_bytes():
                        digest.update(chunk)
                        file.write(chunk)
        except httpx2.HTTPError as error:
            raise UnreachableError(_describe(error)) from None
        if f"sha256:{digest.hexdigest()}" != sha256:
            raise BundleMismatchError(f"asked for {sha256}, got sha256:{digest.hexdigest()}")

    @asynccontextmanager
    async def _open_bundle(self, sha256: str) -> AsyncIterator[httpx2.Response]:
        async with self._client.stream("GET", f"{_PREFIX}/bundles/{sha256}", params={"direct": True}) as response:
            if response.is_error:
                await response.aread()
                raise _error(response)
            elsewhere = response.headers.get("location") if response.is_redirect else None
            if elsewhere is None:
                yield response
                return
        # A client of its own: our token is for the server alone.
        client = httpx2.AsyncClient(timeout=_TIMEOUT, trust_env=self._trust_env)
        async with client, client.stream("GET", elsewhere) as response:
            if not response.is_success:  # such as of an address that is no longer good: ask for another
                raise UnreachableError(f"the object store {response.url.host} answered {response.status_code}")
            yield response

    async def find_artifact(self, member: str, sha256: str) -> ArtifactUpload:
        """How far a content has come that the member keeps."""
        return await self._ask("GET", member, sha256, ArtifactUpload)

    async def find_artifact_address(self, member: str, sha256: str, offset: int) -> PieceAddress:
        """Where in the object store the piece from `offset` on goes."""
        return await self._ask("POST", member, f"{sha256}/address?offset={offset}", PieceAddress)

    async def send_artifact(self, member: str, sha256: str, offset: int, piece: bytes) -> ArtifactUpload:
        """Sends a piece of it; the answer to the last one comes once the whole is stored."""
        return await self._ask("PATCH", member, f"{sha256}?offset={offset}", ArtifactUpload, piece)

    async def end_artifacts(self, member: str) -> None:
        """Says that there is no more of them."""
        await self._send(f"/members/{member}/artifacts:end", b"", self._key_of(member))

    async def put_elsewhere(self, url: str, piece: bytes, headers: dict[str, str]) -> None:
        """Writes to a signed address of the object store, by a client of its own: our token is for the server alone."""
        try:
            async with httpx2.AsyncClient(timeout=_TIMEOUT, trust_env=self._trust_env) as client:
                response = await client.put(url, content=piece, headers=headers)
        except httpx2.HTTPError as error:
            raise UnreachableError(_describe(error)) from None
        if not response.is_success:
            raise UnreachableError(f"the object store {response.url.host} answered {response.status_code}")

    def _key_of(self, member: str) -> dict[str, str]:
        key = self._keys.find(member)
        return {} if key is None else {KEY_HEADER: key.get_secret_value()}

    async def _post(self, path: str, body: bytes, model: type[Answer], headers: dict[str, str] | None = None) -> Answer:
        return _parse(path, await self._send(path, body, headers), model)

    async def _ask(self, method: str, member: str, path: str, model: type[Answer], piece: bytes = b"") -> Answer:
        """Of an artifact of the member."""
        place = f"{_PREFIX}/members/{member}/artifacts/{path}"
        headers = {"content-type": "application/octet-stream", **self._key_of(member)}
        try:
            response = await self._client.request(method, place, content=piece, headers=headers, timeout=_STORING)
        except httpx2.HTTPError as error:
            raise UnreachableError(_describe(error)) from None
        if response.is_error:
            raise _error(response)
        return _parse(place, response.content, model)

    async def _send(self, path: str, body: bytes, headers: dict[str, str] | None = None) -> bytes:
        try:
            response = await self._client.post(
                _PREFIX + path, content=body, headers={"content-type": "application/json", **(headers or {})}
            )
        except httpx2.HTTPError as error:
            raise UnreachableError(_describe(error)) from None
        if response.is_error:
            raise _error(response)
        return response.content


def _parse(path: str, content: bytes, model: type[Answer]) -> Answer:
    try:
        return model.model_validate_json(content, extra="ignore")  # a newer server may say more (P18)
    except ValidationError as error:
        raise UnreachableError(f"{path} answered something else than {model.__name__}: {error}") from None


def _json(body: BaseModel, newer: str) -> bytes:
    """Without the field `newer` where it is not set: a server of the version before refuses what it does not know."""
    return body.model_dump_json(exclude={newer} if getattr(body, newer) is None else None).encode()


def _error(response: httpx2.Response) -> UnreachableError | RefusedError:
    try:
        problem = Problem.model_validate_json(response.content)
    except ValidationError:
        problem = Problem(
            title=response.reason_phrase, status=response.status_code, code="", detail=response.text[:200]
        )
    if response.status_code in _TEMPORARY:
        wait = response.headers.get("retry-after", "")
        return UnreachableError(f"{problem.status} {problem.detail}", float(wait) if wait.isdigit() else None)
    return RefusedError(problem)


def _describe(error: httpx2.HTTPError) -> str:
    return str(error) or type(error).__name__


def _end_json(end: MemberEnd) -> bytes:
    """A server of the release before refuses what it doesn't know."""
    return end.model_dump_json(exclude={"waited_s"} if end.waited_s is None else None).encode()
