"""Checks quarantined devices for the server: nothing of the last holder lives, and a program computes on them (P10)."""

import asyncio
import logging
from collections.abc import Collection, Sequence

from drumline.contracts.worker_api import DeviceCheck, DeviceCheckReport, DeviceCheckReports
from drumline_worker.agent.agent_context import AgentContext
from drumline_worker.agent.api import RefusedError, UnreachableError
from drumline_worker.agent.maintenance import end_strays

_LOG = logging.getLogger(__name__)
_MOST_PIDS = 64


class DeviceChecks:
    """One round at a time; what is asked for meanwhile, the next heartbeat asks for again."""

    def __init__(self, context: AgentContext) -> None:
        self._context = context
        self._round: asyncio.Task[None] | None = None

    def want(self, requests: Sequence[DeviceCheck], alive: Collection[str]) -> None:
        """The server asks. Devices of members that are `alive` here are not checked: their end comes by itself."""
        due = [request for request in requests if request.member not in alive]
        if due and (self._round is None or self._round.done()):
            self._round = asyncio.create_task(self._check(due), name="device checks")

    async def close(self) -> None:
        """Ends the round."""
        if self._round is not None:
            self._round.cancel()
            await asyncio.gather(self._round, return_exceptions=True)

    async def _check(self, requests: Sequence[DeviceCheck]) -> None:
        _LOG.info("checking %s", ", ".join(f"{request.platform}:{request.index}" for request in requests))
        over = {request.member for request in requests}
        survivors = await end_strays(self._context.layout.runs, over.__contains__)
        reports = [await self._check_device(request, survivors.get(request.member, [])) for request in requests]
        body = DeviceCheckReports(incarnation=self._context.registration.incarnation, probes=tuple(reports))
        try:
            await self._context.api.report_device_checks(body)
        except (UnreachableError, RefusedError) as error:
            _LOG.warning("what the checks found could not be told: %s", error)

    async def _check_device(self, request: DeviceCheck, survivors: Sequence[int]) -> DeviceCheckReport:
        flaw = None if survivors else await self._context.launcher.try_device(request.platform, request.index)
        return DeviceCheckReport(
            device=request.device,
            fence=request.fence,
            usable=flaw is None and not survivors,
            survivors=tuple(survivors[:_MOST_PIDS]),
            message=flaw or "",
        )
