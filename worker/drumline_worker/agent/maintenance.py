"""What an agent finds of an earlier one, and what it clears away while it serves."""

import asyncio
import logging
import shutil
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from pydantic import ValidationError

from drumline.checkpoints.store import remove_run, stored_runs
from drumline.contracts.worker_api import StoredRuns
from drumline_worker.agent import compile_cache
from drumline_worker.agent.agent_context import AgentContext, Layout
from drumline_worker.agent.api import RefusedError, UnreachableError
from drumline_worker.host.processes import kill_quietly, processes_below
from drumline_worker.host.rundir import RunDirectory, StartOrder

_LOG = logging.getLogger(__name__)
_KILL_S = 5.0
_RESCAN_S = 0.05


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


_EVERY_S = 600.0
_ASKED_AT_ONCE = 1_000


async def run_maintenance(context: AgentContext, compiled_bytes: int) -> None:
    """Once the worker is registered and every ten minutes then, until cancelled."""
    await context.registration.until_registered()
    while True:
        try:
            await asyncio.to_thread(compile_cache.evict, context.layout.compile_cache, compiled_bytes)
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
