"""What a worker clears away while it serves."""

import asyncio
import logging
import shutil
from pathlib import Path

from drumline.contracts.ids import is_id
from drumline.contracts.worker_api import StoredRuns
from drumline_worker.agent import compile_cache
from drumline_worker.agent.api import RefusedError, UnreachableError
from drumline_worker.agent.workbench import Workbench

_LOG = logging.getLogger(__name__)
_EVERY_S = 600.0
_ASKED_AT_ONCE = 1_000


async def keep_house(bench: Workbench, compiled_bytes: int) -> None:
    """Once the worker is registered and every ten minutes then, until cancelled."""
    await bench.session.until_registered()
    while True:
        try:
            await asyncio.to_thread(compile_cache.evict, bench.layout.compile_cache, compiled_bytes)
            await _delete_expired(bench)
        except (OSError, UnreachableError, RefusedError) as error:
            _LOG.warning("could not clear away everything that is not needed any more: %s", error)
        await asyncio.sleep(_EVERY_S)


async def _delete_expired(bench: Workbench) -> None:
    """Checkpoints of runs that ended long ago; which, the server says. What it does not know stays."""
    stored = await asyncio.to_thread(_runs_in, bench.checkpoints)
    for first in range(0, len(stored), _ASKED_AT_ONCE):
        asked = stored[first : first + _ASKED_AT_ONCE]
        expired = await bench.api.expire_checkpoints(StoredRuns(incarnation=bench.session.incarnation, runs=asked))
        for run in set(expired.runs).intersection(asked):
            await asyncio.to_thread(shutil.rmtree, bench.checkpoints / run, ignore_errors=True)
            _LOG.info("deleted the checkpoints of %s: it ended long ago", run)


def _runs_in(store: Path) -> tuple[str, ...]:
    return tuple(sorted(path.name for path in store.iterdir() if is_id(path.name, "run"))) if store.is_dir() else ()
