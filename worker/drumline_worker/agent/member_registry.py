"""All members on this host: one task each, at most one per id."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import TypeVar

from drumline._log_lines import log_about
from drumline.contracts.worker_api import (
    KEYED_HEARTBEAT_PROTOCOL,
    HeartbeatReply,
    LiveMember,
    MemberHeartbeat,
    MemberNotice,
    MemberRefusal,
    UnsentTelemetry,
)
from drumline_worker.agent.agent_context import AgentContext
from drumline_worker.agent.api import Backoff
from drumline_worker.agent.maintenance import DeviceChecks
from drumline_worker.agent.member import HostedMember
from drumline_worker.agent.plan_probes import PlanProbes
from drumline_worker.host.messages import StopCause
from drumline_worker.host.rundir import StartOrder

_LOG = logging.getLogger(__name__)
Told = TypeVar("Told", MemberHeartbeat, UnsentTelemetry)


class MemberRegistry:
    """Turns notices into members and passes news on to them."""

    def __init__(self, context: AgentContext) -> None:
        self._context = context
        self._members: dict[str, HostedMember] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._draining = False
        self._probes = PlanProbes(context)
        self._drain_ordered = False
        self._device_checks = DeviceChecks(context)
        self._refused: set[str] = set()
        """Members of which the server has said that it does not take what heartbeats tell of them."""

    def _add_new(self, notice: MemberNotice) -> bool:
        """Claims a member that is not here yet; whether it is still to be claimed, the server decides."""
        if self._draining or self._drain_ordered or notice.member in self._members:
            return False
        newcomer = HostedMember(self._context, notice.member, notice.fence)
        self._start(newcomer, newcomer.run())
        return True

    def adopt(self, order: StartOrder) -> None:
        """A member that an earlier agent started."""
        member = HostedMember(self._context, order.claimed.member, order.claimed.fence, order)
        self._start(member, member.adopt(), run=order.claimed.run)

    def apply_reply(self, reply: HeartbeatReply) -> bool:
        """What the server wants of members. Returns whether it brought one to claim."""
        # The order: a member is first told what leaves it least. Fenced ones are killed and a later wish finds them so;
        # a cancel has its own grace, and a drain leaves alone what is being stopped. New ones come behind the drain,
        # which they would miss, and before the checks, which spare the devices of members that are here.
        for notice in reply.fenced:
            if (member := self._members.get(notice.member)) is not None:
                member.fence_off()
        for notice in reply.cancelled:
            self._stop(notice)
        for member in self._members.values():
            member.set_peer_waits(member.id in reply.held)
        for request in reply.stacks:
            if (member := self._members.get(request.member)) is not None:
                member.look(request.asked_at)
        self._drain_ordered = reply.drain
        if reply.drain:
            for member in self._members.values():
                member.drain()
        self._note_refusals(reply.refused)
        added = [self._add_new(notice) for notice in reply.assigned]
        self._probes.apply_reply(reply)
        self._device_checks.want(reply.probes, self._members.keys())
        return any(added)

    def _note_refusals(self, refusals: Sequence[MemberRefusal]) -> None:
        """Said once: each heartbeat brings them again."""
        for refusal in refusals:
            if refusal.member in self._members and refusal.member not in self._refused:
                self._refused.add(refusal.member)
                _LOG.warning("nothing that heartbeats tell of it is taken: %s %s", refusal.detail, refusal.hint)

    def _stop(self, notice: MemberNotice) -> None:
        if (member := self._members.get(notice.member)) is None:
            return
        if notice.reason is None:
            member.cancel(notice.grace_s)
        else:
            member.end_with_gang(StopCause(notice.reason))

    def plans(self) -> tuple[str, ...]:
        """Plans that are probed, for the heartbeat."""
        return self._probes.plans()

    def alive(self, sent_at: float) -> None:
        """The server acknowledged a heartbeat: every shim's deadline moves on."""
        for member in self._members.values():
            member.alive(sent_at)

    def heartbeats(self) -> tuple[MemberHeartbeat, ...]:
        """For the heartbeat."""
        alive = [member for member in self._members.values() if not member.ended.is_set()]
        return tuple(self._with_key(member.heartbeat()) for member in alive)

    def unsent(self) -> tuple[UnsentTelemetry, ...]:
        """For the heartbeat."""
        all_unsent = [unsent for member in self._members.values() if (unsent := member.unsent()) is not None]
        return tuple(self._with_key(unsent) for unsent in all_unsent)

    def _with_key(self, told: Told) -> Told:
        """What heartbeats tell of a member, as the server takes it."""
        if self._context.registration.answer.protocol < KEYED_HEARTBEAT_PROTOCOL:
            return told
        try:
            key = self._context.keys.find(told.member)
        except OSError as error:  # the host lives all the same, and so do its other members
            _LOG.warning("the key of %s can't be read: %s", told.member, error)
            return told
        return told.model_copy(update={"key": key})

    def live(self) -> tuple[LiveMember, ...]:
        """For the registration."""
        return tuple(live for member in self._members.values() if (live := member.live()) is not None)

    def unstarted(self) -> tuple[str, ...]:
        """For the registration, after `live`."""
        return tuple(member.id for member in self._members.values() if member.is_unstarted)

    async def drain(self) -> None:
        """No new members; asks all to stop, and returns when all are reported."""
        self._draining = True
        await self._probes.close()
        for member in self._members.values():
            member.drain()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def kill(self, timeout_s: float) -> None:
        """Ends everything now; waits for the processes, not for the server."""
        self._draining = True
        await self._probes.close()
        members = list(self._members.values())
        for member in members:
            member.kill()
        if members:
            waits = [asyncio.create_task(member.ended.wait()) for member in members]
            _, late = await asyncio.wait(waits, timeout=timeout_s)
            for wait in late:
                wait.cancel()

    async def wait_for_reports(self, timeout_s: float) -> None:
        """Waits for the last reports, as long as that may take."""
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=timeout_s)

    async def abandon(self) -> None:
        """Ends the tasks; what they did not report yet lies on disk for the next agent."""
        await self._probes.close()
        await self._device_checks.close()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _start(self, member: HostedMember, life: Coroutine[None, None, None], **run: str) -> None:
        self._members[member.id] = member
        task = asyncio.create_task(self._supervise(member, life, **run), name=member.id)
        self._tasks[member.id] = task
        task.add_done_callback(lambda _: self._remove(member))

    async def _supervise(self, member: HostedMember, life: Coroutine[None, None, None], **run: str) -> None:
        """After an error of ours, a full disk for one, the member is not forgotten: its end has to be told."""
        backoff = Backoff()
        log_about(member=member.id, **run)
        while True:
            try:
                await life
                self._context.keys.forget(member.id)
                return
            except Exception:  # noqa: BLE001 - whatever it is, a member that we forgot would run or wait for ever
                _LOG.exception("an error of ours in the life of %s; continuing with what is on disk", member.id)
            await asyncio.sleep(backoff.next_s())
            life = member.adopt()

    def _remove(self, member: HostedMember) -> None:
        member.ended.set()
        self._refused.discard(member.id)
        del self._members[member.id], self._tasks[member.id]
