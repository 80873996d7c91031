"""From a notice to a live shim: claim, bundle, start order, launch."""

import asyncio
import logging
from dataclasses import dataclass

from drumline._log_lines import log_about
from drumline.contracts.reasons import EndReason
from drumline.contracts.worker_api import KEYED_PROTOCOL, Claim, Claimed
from drumline_worker.agent import compile_cache
from drumline_worker.agent.agent_context import AgentContext
from drumline_worker.agent.api import RefusedError, UnreachableError
from drumline_worker.agent.backoff import Backoff
from drumline_worker.host.clock import boot_id, boottime, now
from drumline_worker.host.rundir import Ending, StartOrder

_LOG = logging.getLogger(__name__)
_CLAIM_ATTEMPTS = 5
"""With the pauses between them some 6 s, about a heartbeat: the reply to the next one assigns the member again."""


class ClaimLostError(Exception):
    """The member may have been ours, which no answer told, or have run here and be assigned late; it is over by now."""


async def claim(context: AgentContext, member: str, fence: int, coordinator: str | None = None) -> Claimed | None:
    """The claimed member; None when the database decided otherwise, or could not be asked: it is assigned again.

    `coordinator` is where rank 0 of a gang will let the others meet. Raises ClaimLostError.
    """
    unanswered = False
    backoff = Backoff()
    for _ in range(_CLAIM_ATTEMPTS):
        await context.registration.until_settled()
        registrations = context.registration.times_sent
        key = context.keys.make(member) if context.registration.answer.protocol >= KEYED_PROTOCOL else None
        body = Claim(incarnation=context.registration.incarnation, fence=fence, coordinator=coordinator, key=key)
        try:
            claimed = await context.api.claim(member, body)
            if registrations == context.registration.times_sent:
                log_about(run=claimed.run)
                return claimed
            unanswered = True  # a registration was sent meanwhile, which does not list it
        except UnreachableError as error:
            _LOG.warning("claiming %s: %s", member, error)
            unanswered = True
            await asyncio.sleep(error.retry_after_s or backoff.next_s())
        except RefusedError as error:
            _LOG.info("claim of %s refused: %s", member, error)
            if error.worker_is_unknown and error.status in (401, 403):
                context.registration.register_again()
            if unanswered and error.member_is_gone:
                raise ClaimLostError from None
            break
    if unanswered:
        context.keys.hold(member)
    return None


@dataclass(slots=True)
class Started:
    """When the steps of a start were done, CLOCK_BOOTTIME in seconds; None of what is still to come."""

    claimed_at: float | None = None
    complete_at: float | None = None
    """All of its gang was claimed."""
    unpacked_at: float | None = None

    def note_claim(self, asked_at: float) -> None:
        """The first answer to a claim is there: the server wrote it down between question and answer."""
        if self.claimed_at is None:
            self.claimed_at = (asked_at + boottime()) / 2


async def prepare(context: AgentContext, claimed: Claimed, started: Started) -> None:
    """Makes the run directory, with the program in it, and waits for the launcher.

    Raises BundleUnavailableError, LaunchError, or OSError when a write fails.
    """
    directory = context.layout.run_directory(claimed.member)
    started.complete_at = boottime()
    directory.create()
    await context.bundles.extract(claimed.bundle, directory.program)
    started.unpacked_at = boottime()
    await context.launcher.until_ready()


async def launch(context: AgentContext, claimed: Claimed, started: Started) -> None:
    """Starts the shim in the prepared run directory. Raises LaunchError or OSError."""
    directory = context.layout.run_directory(claimed.member)
    compiled = compile_cache.use(context.layout.compile_cache / claimed.version)
    await asyncio.to_thread(context.compiled.verify, compiled)
    order = StartOrder(
        claimed=claimed,
        compile_cache=str(compiled),
        checkpoints=str(context.checkpoints),
        takeover_s=context.registration.answer.takeover_s,
        time_scale=context.registration.answer.time_scale,
        alive_at=context.registration.alive_at,
        boot_id=boot_id(),
        claimed_at=started.claimed_at,
        complete_at=started.complete_at,
        unpacked_at=started.unpacked_at,
        location=context.location,
        spool_bytes=context.spool_bytes,
        has_key=context.keys.find(claimed.member) is not None,
    )
    directory.write_order(order)
    await context.launcher.start(claimed.member, directory.path)


def ending_before_start(reason: EndReason, message: str) -> Ending:
    """Of a member that has no process, and gets none."""
    return Ending(reason=reason, message=message[:8_000], last_seq=0, ended_at=now(), devices_released=True)
