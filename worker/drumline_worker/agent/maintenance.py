"""What an agent finds of an earlier one, what it clears away while it serves, and its checks of quarantined devices.

A device is given back once nothing of its last holder lives, and a program computes on it (P10).
"""

import asyncio
import logging
import shutil
import signal
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from drumline.checkpoints.store import remove_run, stored_runs
from drumline.contracts.retention import StoredRuns
from drumline.contracts.worker_api import DeviceCheck, DeviceCheckReport, DeviceCheckReports
from drumline_worker.agent import host_cache
from drumline_worker.agent.agent_context import AgentContext, Layout
from drumline_worker.agent.api import RefusedError, UnreachableError
from drumline_worker.host.rundir import RunDirectory, StartOrder
from drumline_worker.host.system import kill_quietly, processes_below

_LOG = logging.getLogger(__name__)
_KILL_S = 5.0
_RESCAN_S = 0.05
_EVERY_S = 600.0
_ASKED_AT_ONCE = 1_000
_MOST_PIDS = 64


def find_members(layout: Layout, location: str) -> Iterator[StartOrder]:
    """Members with a whole start order and a shim that was started: alive, or with something still to report."""
    for path in sorted(layout.runs.iterdir()):
        directory = layout.run_directory(path.name)
        try:
            started = not directory.revoke_start()
            order = directory.order()
        except (OSError, ValidationError):
            started = False
        if started and _is_ours(directory, order, location):
            _LOG.info("found %s of an earlier agent", path.name)
            yield order
        else:
            shutil.rmtree(path, ignore_errors=True)


def _is_ours(directory: RunDirectory, order: StartOrder, location: str) -> bool:
    """Whether it began in this location, or shows it. Else it is the copy of a member that may be alive elsewhere, of
    which nothing can be told from here.
    """
    is_here = order.location == location != ""
    return is_here or directory.is_attended() or directory.read_ending() is not None


async def end_strays(runs: Path, is_over: Callable[[str], bool], timeout_s: float = _KILL_S) -> dict[str, list[int]]:
    """Kills the processes of members that are over. Returns those that are alive after `timeout_s`, by member.

    Found are those that work in a run directory or were told of it. One that hides from both was a child of its shim
    and of the launcher, which end their descendants; only who outlives both can hide.
    """
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        strays: defaultdict[str, list[int]] = defaultdict(list)
        for pid, member in processes_below(runs):
            if is_over(member):
                strays[member].append(pid)
        if not strays or asyncio.get_running_loop().time() >= deadline:
            return dict(strays)
        for pids in strays.values():
            for pid in pids:
                kill_quietly(pid, signal.SIGKILL)
        await asyncio.sleep(_RESCAN_S)


async def run_maintenance(context: AgentContext, compiled_bytes: int) -> None:
    """Once the worker is registered and every ten minutes then, until cancelled."""
    await context.registration.until_registered()
    while True:
        try:
            await asyncio.to_thread(host_cache.evict_compiled, context.layout.compile_cache, compiled_bytes)
            await _delete_expired(context)
        except (OSError, UnreachableError, RefusedError) as error:
            _LOG.warning("could not clear away everything that is not needed any more: %s", error)
        await asyncio.sleep(_EVERY_S)


async def _delete_expired(context: AgentContext) -> None:
    """Checkpoints of runs that ended long ago; which, the server says. What it does not know stays."""
    stored = await asyncio.to_thread(stored_runs, context.checkpoints)
    for first in range(0, len(stored), _ASKED_AT_ONCE):
        asked = stored[first : first + _ASKED_AT_ONCE]
        expired = await context.api.expire_checkpoints(
            StoredRuns(incarnation=context.registration.incarnation, runs=asked)
        )
        for run in set(expired.runs).intersection(asked):
            await asyncio.to_thread(remove_run, context.checkpoints, run)
            _LOG.info("deleted the checkpoints of %s: it ended long ago", run)


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
