"""From a notice to a live shim: claim, bundle, plan, launch."""

import asyncio
import logging

from drumline.contracts.worker_api import Claim, Claimed
from drumline_worker.agent import compile_cache
from drumline_worker.agent.agent_context import Workbench
from drumline_worker.agent.api import RefusedError, UnreachableError
from drumline_worker.agent.backoff import Backoff
from drumline_worker.host.clock import boot_id
from drumline_worker.host.rundir import MemberPlan

_LOG = logging.getLogger(__name__)
_CLAIM_ATTEMPTS = 5


class ClaimLostError(Exception):
    """The member may have been ours, which no answer told, or have run here and be rung late; it is over by now."""


async def claim(bench: Workbench, member: str, fence: int, coordinator: str | None = None) -> Claimed | None:
    """The claimed member; None when the database decided otherwise, or could not be asked: it will ring again.

    `coordinator` is where rank 0 of a gang will let the others meet. Raises ClaimLostError.
    """
    unanswered = False
    backoff = Backoff()
    for _ in range(_CLAIM_ATTEMPTS):
        await bench.session.until_settled()
        registrations = bench.session.registrations
        body = Claim(incarnation=bench.session.incarnation, fence=fence, coordinator=coordinator)
        try:
            claimed = await bench.api.claim(member, body)
            if registrations == bench.session.registrations:
                return claimed
            unanswered = True  # a registration was sent meanwhile, which does not list it
        except UnreachableError as error:
            _LOG.warning("claiming %s: %s", member, error)
            unanswered = True
            await asyncio.sleep(error.retry_after_s or backoff.next_s())
        except RefusedError as error:
            _LOG.info("claim of %s refused: %s", member, error)
            if error.worker_is_unknown and error.status in (401, 403):
                bench.session.register_again()
            if unanswered and error.member_is_gone:
                raise ClaimLostError from None
            return None
    return None


async def prepare(bench: Workbench, claimed: Claimed) -> None:
    """Makes the run directory, with the program in it, and waits for the launcher.

    Raises BundleUnavailableError, LaunchError, or OSError when the disk does not play along.
    """
    directory = bench.layout.run_directory(claimed.member)
    directory.create()
    await bench.bundles.extract(claimed.bundle, directory.program)
    await bench.launcher.until_ready()


async def launch(bench: Workbench, claimed: Claimed) -> None:
    """Starts the shim in the prepared run directory. Raises LaunchError or OSError."""
    directory = bench.layout.run_directory(claimed.member)
    compiled = compile_cache.use(bench.layout.compile_cache / claimed.version)
    await asyncio.to_thread(bench.compiled.verify, compiled)
    plan = MemberPlan(
        claimed=claimed,
        compile_cache=str(compiled),
        checkpoints=str(bench.checkpoints),
        takeover_s=bench.session.registered.takeover_s,
        alive_at=bench.session.alive_at,
        boot_id=boot_id(),
        place=bench.place,
        spool_bytes=bench.spool_bytes,
    )
    directory.write_plan(plan)
    await bench.launcher.start(claimed.member, directory.path)
