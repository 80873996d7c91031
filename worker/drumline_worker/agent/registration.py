"""The worker's standing with the server: registered under an incarnation, kept alive by heartbeats, and notified.

Notifications come through the Celery child, which the agent keeps alive. It works without: heartbeats bring all news.
"""

import asyncio
import contextlib
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from drumline.contracts.heartbeats import EARLY_HEARTBEAT_S, HEARTBEAT_AGAIN_S, HEARTBEAT_ANSWER_S
from drumline.contracts.worker_api import (
    KEYED_PROTOCOL,
    PROTOCOL_VERSION,
    Heartbeat,
    HeartbeatReply,
    LiveMember,
    MemberHeartbeat,
    Register,
    Registered,
    UnsentTelemetry,
)
from drumline_worker.agent.api import Api, Backoff, RefusedError, UnreachableError
from drumline_worker.agent.links import child_environment
from drumline_worker.host.system import boottime, now

_LOG = logging.getLogger(__name__)
_LEAST_PAUSE_S = 0.1
"""Between two heartbeats, however often news of members on this host asks for one."""
_RESTART_EVERY_S = 30.0
"""Whoever can write the queue can end the child again and again: that costs the host a start in this time, no more."""
_PIECE_BYTES, _MOST_CHARACTERS = 65_536, 300
_HOPELESS = 2
"""Children in a row that never listened: the next will not either."""


class SupersededError(Exception):
    """Another worker serves this host now: what runs here does not count any more."""


class HostMembers(Protocol):
    """The members on this host, as far as registering and heartbeats are concerned."""

    def live(self) -> tuple[LiveMember, ...]:
        """For the registration."""

    def unstarted(self) -> tuple[str, ...]:
        """For the registration, after `live`."""

    def heartbeats(self) -> tuple[MemberHeartbeat, ...]:
        """For the heartbeat."""

    def alive(self, sent_at: float) -> None:
        """The server acknowledged something sent at this CLOCK_BOOTTIME."""

    def plans(self) -> tuple[str, ...]:
        """Plans that are probed, for the heartbeat."""

    def unsent(self) -> tuple[UnsentTelemetry, ...]:
        """Members that have ended with telemetry still to be sent, for the heartbeat."""

    def apply_reply(self, reply: HeartbeatReply) -> bool:
        """What the server wants of members and probes. Returns whether it brought a member to claim."""


class Registration:
    """Registers, sends heartbeats, and registers again when the server has forgotten this incarnation."""

    def __init__(self, api: Api, introduction: Register, on_refused: Callable[[RefusedError], Awaitable[None]]) -> None:
        self._api = api
        self._introduction = introduction
        self._on_refused = on_refused
        self._again = asyncio.Event()
        self._heartbeat_wanted = asyncio.Event()
        self._sent_at = 0.0
        """When the last heartbeat was sent, as the event loop tells the time."""
        self._notified: asyncio.TimerHandle | None = None
        self._was_notified = False
        """Whether a notification came before the heartbeat that is under way."""
        self._notifiable_from = 0.0
        """Earlier, a notification waits: the last early heartbeat brought no work."""
        self._ready = asyncio.Event()
        self._registered: Registered | None = None
        self._replaces = ""
        """The newest incarnation of this host that we know of."""
        self.times_sent = 0
        """How many registrations were sent: the server gives up members that one does not list."""
        self._settled = asyncio.Event()
        self._draining = False
        self._drain_is_known = asyncio.Event()
        self.alive_at = 0.0
        """CLOCK_BOOTTIME at which the last message that the server acknowledged was sent."""

    @property
    def incarnation(self) -> str:
        """The current incarnation."""
        return self.answer.incarnation

    @property
    def answer(self) -> Registered:
        """What the server said last; only asked for after the first registration."""
        if self._registered is None:
            raise RuntimeError("the worker is not registered yet")
        return self._registered

    def register_again(self) -> None:
        """The server does not know the incarnation."""
        self._again.set()
        self._heartbeat_wanted.set()

    @property
    def ever_registered(self) -> bool:
        """Whether the server ever took this worker."""
        return self._registered is not None

    def request_heartbeat(self) -> None:
        """The server has news for us, which the next heartbeat brings."""
        self._heartbeat_wanted.set()

    def notify(self) -> None:
        """Something, true or not, came over the broker: the server may have news.

        Whatever comes, there is at most one early heartbeat a second that brings no work; one that does is not counted,
        as runs that follow each other within a second would else wait for the rest of it.
        """
        if self._notified is None:
            loop = asyncio.get_running_loop()
            self._notified = loop.call_at(max(loop.time(), self._notifiable_from), self._send_early_heartbeat)

    def _send_early_heartbeat(self) -> None:
        self._notifiable_from = asyncio.get_running_loop().time() + EARLY_HEARTBEAT_S * self.answer.time_scale
        self._heartbeat_wanted.set()

    async def until_settled(self) -> None:
        """Waits while a registration is under way, whenever it will be taken."""
        await self._settled.wait()

    async def until_registered(self) -> None:
        """Waits for the first registration."""
        await self._ready.wait()

    def drain(self) -> None:
        """Says from now on that no more work is welcome."""
        self._draining = True
        self._heartbeat_wanted.set()

    async def until_drain_is_known(self, timeout_s: float) -> None:
        """Waits until the server places nothing here any more, or cannot be told in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._drain_is_known.wait()

    async def run(self, members: HostMembers, on_registered: Callable[[Registered], None]) -> None:
        """Until cancelled. Raises SupersededError."""
        while True:
            sent_at = await self._register(members)
            on_registered(self.answer)
            self._record_ack(sent_at, members)
            self._ready.set()
            await self._heartbeat_until_unknown(members)

    async def _register(self, members: HostMembers) -> float:
        """Returns the CLOCK_BOOTTIME at which the registration was sent that the server took."""
        self._settled.clear()
        backoff = Backoff()
        protocol = PROTOCOL_VERSION
        unanswered = False  # a registration that got no answer may have been taken all the same
        while True:
            sent_at = boottime()
            # Before the list is made: a claim answered from here on is not on it, and sees that by this number.
            self.times_sent += 1
            body = self._introduce(members, protocol)
            try:
                self._registered = await self._api.register(body)
            except UnreachableError as error:
                unanswered = True
                wait_s = backoff.next_s()
                _LOG.warning("the server is not reachable (%s); trying again in %.1f s", error, wait_s)
                await asyncio.sleep(error.retry_after_s or wait_s)
            except RefusedError as error:
                # After a lost answer the newest incarnation may be our own.
                if self.ever_registered and not unanswered:
                    _raise_if_superseded(error)
                if error.older_protocol is not None and protocol == PROTOCOL_VERSION:
                    _LOG.warning("the server is older; speaking protocol %d with it", protocol := error.older_protocol)
                    continue
                if error.newest_incarnation not in (None, self._replaces):
                    # Named now, so that the server knows that the next try means to replace it.
                    self._replaces = error.newest_incarnation or ""
                    continue
                await self._on_refused(error)
                await asyncio.sleep(backoff.next_s())
            else:
                break
        self._replaces = self._registered.incarnation
        self._again.clear()
        self._settled.set()
        _LOG.info("registered as %s (%s)", self._registered.host, self._registered.incarnation)
        return sent_at

    def _introduce(self, members: HostMembers, protocol: int) -> Register:
        news: dict[str, object] = {"members": members.live(), "unstarted": members.unstarted()}  # in this order
        if protocol < KEYED_PROTOCOL:
            news["slice"] = None  # which that version does not know
        return self._introduction.model_copy(update={**news, "replaces": self._replaces, "protocol": protocol})

    async def _heartbeat_until_unknown(self, members: HostMembers) -> None:
        missed = 0
        while not self._again.is_set():
            self._clear_requests()
            sent_at = boottime()  # the server counts from when it arrives: our deadline is the earlier one
            try:
                heartbeat = self._heartbeat(members)
                reply = await self._api.heartbeat(heartbeat, HEARTBEAT_ANSWER_S * self.answer.time_scale)
            except UnreachableError as error:
                missed += 1
                if missed == 1:
                    _LOG.warning("a heartbeat was not acknowledged: %s", error)
                await self._pause(HEARTBEAT_AGAIN_S * self.answer.time_scale)
            except RefusedError as error:
                _raise_if_superseded(error)
                _LOG.warning("the server does not know this worker any more (%s); registering again", error)
                return
            else:
                if missed:
                    _LOG.info("the server acknowledges heartbeats again")
                missed = 0
                if heartbeat.draining:
                    self._drain_is_known.set()
                self._record_ack(sent_at, members)
                if members.apply_reply(reply):
                    self._notifiable_from = 0.0
                await self._pause(self.answer.heartbeat_s)

    def _clear_requests(self) -> None:
        """Before a heartbeat is sent, which answers them: what comes while it is under way wants another."""
        self._heartbeat_wanted.clear()
        self._was_notified = self._notified is not None
        if self._notified is not None:
            self._notified.cancel()
            self._notified = None
        self._sent_at = asyncio.get_running_loop().time()

    def _heartbeat(self, members: HostMembers) -> Heartbeat:
        spoken = min(PROTOCOL_VERSION, self.answer.protocol)
        return Heartbeat(
            incarnation=self.incarnation,
            sent_at=now(),
            members=members.heartbeats(),
            plans=members.plans(),
            unsent=members.unsent(),
            draining=self._draining,
            notified=self._was_notified,
            protocol=spoken if spoken >= KEYED_PROTOCOL else None,
        )

    def _record_ack(self, sent_at: float, members: HostMembers) -> None:
        self.alive_at = sent_at
        members.alive(sent_at)

    async def _pause(self, seconds: float) -> None:
        """Waits so long, or until the next heartbeat is wanted earlier."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._heartbeat_wanted.wait()
        await asyncio.sleep(max(0.0, self._sent_at + _LEAST_PAUSE_S - asyncio.get_running_loop().time()))


def _raise_if_superseded(error: RefusedError) -> None:
    """A worker that was replaced must not come back: the two would take each other's work away for ever."""
    if error.superseded:
        raise SupersededError(f"another worker serves this host now, with the same token: {error}")


class CeleryChild:
    """Starts the child for the broker that the server names, and again when it dies or the settings change."""

    def __init__(self, home: Path, on_notified: Callable[[], None], on_hopeless: Callable[[str], None]) -> None:
        self._home = home
        self._on_notified = on_notified
        self._on_hopeless = on_hopeless
        self._listens = False
        """Whether the child that runs now was ever heard."""
        self._deaf = 0
        """Children in a row that ended before they listened."""
        self._said = ""
        """The last line that a child wrote."""
        self._settled = asyncio.Event()
        self._settings: bytes | None = None
        """A line for the child, with the broker's password: it goes through a pipe, never into argv or environment."""
        self._changed = asyncio.Event()

    def use(self, registered: Registered) -> None:
        """The broker and the queue of the current registration."""
        settings = None
        if registered.broker_url is not None:
            named = {"broker_url": registered.broker_url.get_secret_value(), "queue": registered.queue}
            settings = json.dumps(named).encode() + b"\n"
        if settings != self._settings:
            self._settings = settings
            self._changed.set()
        if settings is None:
            self._settled.set()

    async def until_settled(self, timeout_s: float) -> None:
        """Waits until a child listens, none is wanted, or none ever will; the broker may be away for longer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._settled.wait()

    async def run(self) -> None:
        """Until cancelled."""
        restart_from = 0.0
        while True:
            self._changed.clear()
            if self._settings is None:
                await self._changed.wait()
                continue
            code = await self._serve(self._settings)
            if code is None:
                continue
            wait_s = max(0.0, restart_from - time.monotonic())
            self._note_end(code, wait_s)
            await self._until_changed(wait_s)
            restart_from = time.monotonic() + _RESTART_EVERY_S

    def _note_end(self, code: int, wait_s: float) -> None:
        _LOG.warning("the Celery child ended with exit code %d; starting it again in %.1f s", code, wait_s)
        self._deaf = 0 if self._listens else self._deaf + 1
        if self._deaf == _HOPELESS:
            self._settled.set()
            said = self._said or f"exit code {code}"
            self._on_hopeless(f"the Celery child ended {self._deaf} times before it listened: {said}")

    async def _until_changed(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()

    async def _serve(self, settings: bytes) -> int | None:
        """One child's life: its exit code, or None when other settings are wanted."""
        theirs, ours = os.pipe()
        news, wakes = os.pipe()
        try:
            process = await self._spawn(theirs, wakes)
        finally:
            os.close(theirs)
            os.close(wakes)
        self._listens = False
        asyncio.get_running_loop().add_reader(news, self._hear, news)
        with contextlib.suppress(BrokenPipeError):  # it has ended already
            os.write(ours, settings)
        telling = asyncio.create_task(self._pass_on(process.stderr))
        ended = asyncio.create_task(process.wait())
        changed = asyncio.create_task(self._changed.wait())
        try:
            await asyncio.wait({ended, changed}, return_when=asyncio.FIRST_COMPLETED)
            return ended.result() if ended.done() else None
        finally:
            changed.cancel()
            os.close(ours)
            await asyncio.shield(ended)
            await asyncio.shield(telling)

    def _hear(self, news: int) -> None:
        """The child listens, or had a notification: one byte each, of which many may come at once."""
        if os.read(news, _PIECE_BYTES):
            self._listens = True
            self._settled.set()
            self._on_notified()
        else:
            asyncio.get_running_loop().remove_reader(news)
            os.close(news)

    async def _pass_on(self, lines: asyncio.StreamReader | None) -> None:
        """What the child writes goes to our own log."""
        while lines is not None and (raw := await lines.read(_PIECE_BYTES)):
            told = [line for line in raw.decode(errors="replace").splitlines() if line.strip()]
            for line in told:
                _LOG.warning("Celery child: %s", line)
            self._said = told[-1].strip()[:_MOST_CHARACTERS] if told else self._said

    async def _spawn(self, settings: int, wakes: int) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "drumline_worker.celery_child.celery_app",
            "--settings-fd", str(settings), "--wake-fd", str(wakes),
            env=child_environment(), cwd=self._home, pass_fds=[settings, wakes], start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
