"""One member on this host, from the claim to the last acknowledged event."""

import asyncio
import logging
from datetime import datetime

from drumline.contracts.events import MemberAck, MemberEnd
from drumline.contracts.heartbeats import CLAIM_AGAIN_S
from drumline.contracts.programs import WAITING_FOR_TELEMETRY, MemberTick
from drumline.contracts.reasons import EndReason
from drumline.contracts.stacks import MemberStanding, StacksReport
from drumline.contracts.worker_api import Claimed, LiveMember, MemberHeartbeat, UnsentTelemetry
from drumline_worker.agent import agent_context
from drumline_worker.agent.agent_context import AgentContext, ClaimLostError, CoordinatorPort, ending_before_start
from drumline_worker.agent.api import Backoff, RefusedError, UnreachableError
from drumline_worker.agent.artifact_sender import ArtifactSender
from drumline_worker.agent.host_cache import BundleUnavailableError
from drumline_worker.agent.links import LaunchError, ShimLink
from drumline_worker.agent.maintenance import end_strays
from drumline_worker.agent.telemetry_sender import TelemetrySender
from drumline_worker.host.messages import Acked, Alive, Ended, Look, Looked, PeerWaits, Spooled, Stop, StopCause
from drumline_worker.host.rundir import Ending, StartOrder
from drumline_worker.host.spool import SpoolReader, last_seq_on_disk
from drumline_worker.host.system import boot_id, boottime, now

_LOG = logging.getLogger(__name__)
_PROOF_S = 5.0
"""The launcher reaps a shim and kills what is below it in a second; else devices are not freed but quarantined."""
_GIVEN_UP = "Its worker registered again before its process was started."


class _UnwantedError(Exception):
    """The member must not start any more."""

    def __init__(self, reason: EndReason, message: str) -> None:
        super().__init__(message)
        self.ending = ending_before_start(reason, message)


class HostedMember:
    """`run` (or `adopt`) is its life; the other methods bring news, at any time."""

    def __init__(self, context: AgentContext, member: str, fence: int, order: StartOrder | None = None) -> None:
        self._context = context
        self.id = member
        self.fence = fence
        self._directory = context.layout.run_directory(member)
        self._claimed: Claimed | None = order.claimed if order else None
        self._boot_id = order.boot_id if order else boot_id()
        self._link: ShimLink | None = None
        self._stop: Stop | None = None
        self._fenced = False
        self._started = agent_context.Started()
        self._claimed_in = 0
        """How many registrations the worker had sent when it had the claim's answer."""
        self._is_launched = order is not None
        self._is_revoked = False
        """Whether a registration did not list it, after the launcher was asked to start it."""
        self._progress: Spooled | None = None
        self._sender: TelemetrySender | None = None
        self._peer_waits = False
        self._answer: asyncio.Task[None] | None = None
        self._port: CoordinatorPort | None = None
        self.ended = asyncio.Event()
        """Set when no process of it is left."""

    def cancel(self, grace_s: float | None = None) -> None:
        """The server wants it stopped, within the run's own grace unless it names another."""
        self._request_stop(Stop(cause=StopCause.CANCELLED, grace_s=self._grace_s if grace_s is None else grace_s))

    def end_with_gang(self, cause: StopCause) -> None:
        """The gang has lost a member or hangs: what this one still does would not count."""
        self._request_stop(Stop(cause=cause))

    def drain(self) -> None:
        """The host goes away; the run resumes elsewhere. What is being stopped already stays as it is."""
        if self._stop is None:
            self._request_stop(Stop(cause=StopCause.PREEMPTED, grace_s=self._grace_s))

    def kill(self) -> None:
        """The host goes away now."""
        self._request_stop(Stop(cause=StopCause.PREEMPTED))

    def fence_off(self) -> None:
        """Nothing that it does counts any more."""
        self._fenced = True
        self._request_stop(Stop(cause=StopCause.FENCED))

    def alive(self, sent_at: float) -> None:
        """The server acknowledged a heartbeat."""
        if self._link is not None:
            self._link.send(Alive(sent_at=sent_at))

    def look(self, asked_at: datetime) -> None:
        """Somebody wants to know where it stands. Repeated in each heartbeat's reply until it is answered."""
        if self._link is not None and self._progress is not None and self._progress.can_look:
            self._link.send(Look(asked_at=asked_at))

    async def _report_standing(self, standing: MemberStanding) -> None:
        context = self._context  # told once: as long as the server has no answer, it asks again
        try:
            report = StacksReport(fence=self.fence, incarnation=context.registration.incarnation, standing=standing)
            await context.api.report_stacks(self.id, report)
        except (RefusedError, UnreachableError) as error:
            _LOG.warning("where %s stands could not be told: %s", self.id, error)

    def set_peer_waits(self, peer_waits: bool) -> None:
        """Whether another member of its gang waits for its telemetry to be taken."""
        if peer_waits != self._peer_waits and self._link is not None:
            self._link.send(PeerWaits(waits=peer_waits))
        self._peer_waits = peer_waits

    @property
    def _grace_s(self) -> float:
        return self._claimed.limits.grace_s if self._claimed else 0.0

    def _request_stop(self, stop: Stop) -> None:
        """Repeated wishes for the same thing change nothing."""
        if self._stop != stop and not (self._stop and self._stop.grace_s is None):
            self._stop = stop
            if self._link is not None:
                self._link.send(stop)

    def heartbeat(self) -> MemberHeartbeat:
        """Where the program is."""
        progress = self._progress
        return MemberHeartbeat(
            member=self.id,
            fence=self.fence,
            step=progress.step if progress else None,
            last_collective=progress.last_collective if progress else None,
            tick=self._tick(),
        )

    def unsent(self) -> UnsentTelemetry | None:
        """What there is to send of a member that has ended; None before, and when all is sent."""
        if not self.ended.is_set() or self._sender is None or self._sender.done.is_set():
            return None
        return UnsentTelemetry(member=self.id, unsent_bytes=self._sender.unsent_bytes)

    def _tick(self) -> MemberTick | None:
        return self._progress.status.tick(boottime()) if self._progress and self._progress.status else None

    def live(self) -> LiveMember | None:
        """As a registration lists it; None before it has a process, and then it gets none any more."""
        if not self._is_launched or self._claimed is None or self._fenced or self._boot_id != boot_id():
            return None
        self._is_revoked = self._revoke_start()
        shim = self._directory.shim()
        if self._is_revoked or shim is None:
            return None
        return LiveMember(
            member=self.id,
            attempt=self._claimed.attempt,
            fence=self.fence,
            pid=shim.pid,
            started_at=shim.started_at,
        )

    @property
    def is_unstarted(self) -> bool:
        """Whether it is claimed and gets no process any more, as `live` did not list it."""
        return self._claimed is not None and (self._is_revoked or not self._is_launched)

    def _revoke_start(self) -> bool:
        """Whether no shim begins any more."""
        try:
            return self._directory.revoke_start()
        except OSError as error:  # then no shim can write down that it begins either
            _LOG.warning("the start of %s can't be revoked: %s", self.id, error)
            return self._directory.shim() is None

    async def run(self) -> None:
        """Claims it, runs it, reports it. A refused claim is the end of the matter."""
        try:
            claimed = await self._claim()
        except ClaimLostError:
            await self._prove_gone()
            return
        if claimed is not None:
            try:
                await self._run_claimed(claimed)
            finally:
                if self._port is not None:
                    self._port.close()

    async def _run_claimed(self, claimed: Claimed) -> None:
        try:
            complete = claimed if claimed.rendezvous.size == 1 else await self._await_gang(claimed)
        except OSError as error:
            await self._report(ending_before_start(EndReason.START_FAILED, f"no port to meet at: {error}"))
            return
        if complete is None:
            await self._report(ending_before_start(EndReason.FENCED, "Its gang never was complete."))
            return
        try:
            await self._start(complete)
        except _UnwantedError as unwanted:
            await self._report(unwanted.ending)
            self._context.launcher.forget(self.id)
        except BundleUnavailableError as error:
            await self._report(ending_before_start(EndReason.BUNDLE_UNAVAILABLE, str(error)))
        except OSError as error:
            await self._report(ending_before_start(EndReason.START_FAILED, str(error)))
        except LaunchError as error:
            await self._resolve_failed_launch(error)
        else:
            await self._supervise()
        self._directory.remove()

    async def _start(self, claimed: Claimed) -> None:
        """Raises _UnwantedError and as `prepare` and `launch`."""
        self._require_wanted()
        await agent_context.prepare(self._context, claimed, self._started)
        self._require_wanted()
        self._is_launched = True  # before the launcher is asked: a registration meanwhile has to list or revoke it
        await agent_context.launch(self._context, claimed, self._started)
        if self._is_revoked:
            raise _UnwantedError(EndReason.NOT_STARTED, _GIVEN_UP)

    def _require_wanted(self) -> None:
        """To be asked at the last moment. Raises _UnwantedError."""
        if self._stop is not None:
            raise _UnwantedError(EndReason(self._stop.cause), "Stopped before its process was started.")
        if self._claimed_in != self._context.registration.times_sent:
            raise _UnwantedError(EndReason.NOT_STARTED, _GIVEN_UP)

    async def _claim(self, coordinator: str | None = None) -> Claimed | None:
        """Claims it, or asks again what became of its gang, and keeps the answer. Raises ClaimLostError."""
        asked_at = boottime()
        claimed = await agent_context.claim(self._context, self.id, self.fence, coordinator)
        self._claimed_in = self._context.registration.times_sent
        if claimed is not None:
            self._claimed = claimed
            self._started.note_claim(asked_at)
            if claimed.cancel:
                self.cancel()
        return claimed

    async def _prove_gone(self) -> None:
        """Reports that no process of it lives here, which frees its devices. It may have run: answers come late."""
        survivors = await end_strays(self._context.layout.runs, self.id.__eq__)
        if survivors:
            _LOG.warning("%s is over, and processes of it survive SIGKILL: %s", self.id, survivors[self.id])
        else:
            await self._report(
                ending_before_start(EndReason.FENCED, "It was over before its worker knew that it had it.")
            )

    async def _resolve_failed_launch(self, error: LaunchError) -> None:
        """The launcher may have died between fork and answer: either no shim ever begins, or it is looked after."""
        if self._directory.revoke_start():
            await self._report(ending_before_start(EndReason.START_FAILED, str(error)))
        else:
            _LOG.warning("%s, but %s has begun", error, self.id)
            await self._supervise()

    async def _await_gang(self, claimed: Claimed) -> Claimed | None:
        """The answer that has every member claimed and says where to meet; None if that will not be."""
        if claimed.rendezvous.rank == 0:
            self._port = self._context.open_coordinator_port()
        coordinator = self._port.coordinator if self._port else None
        while self._stop is None:
            try:
                answer = await self._claim(coordinator)
            except ClaimLostError:
                return None
            if answer is None or answer.rendezvous.coordinator is not None:
                return answer
            await asyncio.sleep(CLAIM_AGAIN_S)
        return claimed

    async def adopt(self) -> None:
        """Continues with a member that an earlier agent started: it lives, or its end is still to be told."""
        await self._context.registration.until_registered()
        await self._supervise()
        self._directory.remove()

    async def _supervise(self) -> None:
        self._sender = sender = TelemetrySender(
            self._context,
            self.id,
            self.fence,
            SpoolReader(self._directory.spool),
            on_ack=self._apply_ack,
            on_fenced=self.fence_off,
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(sender.run())
            tasks.create_task(ArtifactSender(self._context, self.id, self._directory, sender).run())
            ending = await self._follow(sender)
            self.ended.set()
            _LOG.info("%s ended: %s %s", self.id, ending.reason, ending.message)
            await self._record_compiled()
            # The end overtakes the telemetry that is left (P11): the devices are free sooner.
            sender.finish(ending.last_seq)
            await self._report(ending)
        self._context.launcher.forget(self.id)

    async def _record_compiled(self) -> None:
        """Before the end is told: a run that starts on the news would compile again what has no hash yet."""
        if self._claimed is None:
            return
        try:
            directory = self._context.layout.compile_cache / self._claimed.version
            await asyncio.to_thread(self._context.compiled.record, directory)
        except OSError as error:
            _LOG.warning("what %s compiled will be compiled again: %s", self.id, error)

    async def _follow(self, sender: TelemetrySender) -> Ending:
        """Listens to the shim until the member has ended."""
        try:
            self._link = await ShimLink.connect(self._directory)
        except OSError:
            return await self._ending_from_disk()
        try:
            if self._stop is not None:
                self._link.send(self._stop)
            self._link.send(Alive(sent_at=self._context.registration.alive_at))
            if self._peer_waits:
                self._link.send(PeerWaits(waits=True))
            async for news in self._link.news():
                if isinstance(news, Ended):
                    return news.ending
                if isinstance(news, Looked):
                    self._answer = asyncio.create_task(self._report_standing(news.standing))
                    continue
                self._record_progress(news)
                sender.tell(news.seq)
        finally:
            self._link.close()
            self._link = None
        return await self._ending_from_disk()

    def _record_progress(self, news: Spooled) -> None:
        """A program that hangs is told of at once, as the rest of its gang has to dump its stacks; one that is made to
        wait, as the clocks of the others have to pause.
        """
        known, self._progress = self._progress, news
        if _is_urgent(news) != (_is_urgent(known) if known else (False, False)):
            self._context.registration.request_heartbeat()

    async def _ending_from_disk(self) -> Ending:
        """The shim is gone. Without its last word, only the launcher can prove that nothing of it lives."""
        ending = self._directory.read_ending()
        if ending is not None:
            return ending
        proven = self._boot_id != boot_id() or await self._context.launcher.wait_gone(self.id, _PROOF_S)
        ending = Ending(
            reason=EndReason.SHIM_KILLED,
            message="Something outside Drumline, or the program, killed the process that looked after it.",
            last_seq=last_seq_on_disk(self._directory.spool),
            ended_at=now(),
            devices_released=proven,
        )
        try:
            self._directory.write_ending(ending)
        except OSError as error:
            _LOG.warning("the end of %s can't be kept on disk: %s", self.id, error)
        return ending

    async def _report(self, ending: Ending) -> None:
        """Tells the server at once, and until it knows. Of a fenced member it still takes the proof of death."""
        # Without an end: only this frees the devices before the takeover, and nothing waits for it but this member's
        # own task. An agent that stops cancels it; the next one finds the end on disk.
        backoff, began = Backoff(), boottime()
        while True:
            end = MemberEnd(
                fence=self.fence,
                incarnation=self._context.registration.incarnation,
                tick=self._tick(),
                waited_s=boottime() - began if self._claimed and self._claimed.takes_times else None,
                **ending.model_dump(),
            )
            try:
                self._apply_ack(await self._context.api.end(self.id, end))
            except UnreachableError as error:
                await asyncio.sleep(error.retry_after_s or backoff.next_s())
            except RefusedError as error:
                if not error.worker_is_unknown:
                    _LOG.warning("the end of %s is not wanted: %s", self.id, error)
                    return
                self._context.registration.register_again()
                await asyncio.sleep(backoff.next_s())
            else:
                return

    def _apply_ack(self, ack: MemberAck) -> None:
        if ack.fence > self.fence:
            self.fence_off()
        elif ack.cancel and not self.ended.is_set():
            self.cancel()
        if self._link is not None:
            self._link.send(Acked(seq=ack.acked_seq))


def _is_urgent(news: Spooled) -> tuple[bool, bool]:
    """What the server should not hear only with the next heartbeat: a hang, and that the program is made to wait."""
    status = news.status
    return (status.overdue, status.activity == WAITING_FOR_TELEMETRY) if status else (False, False)
