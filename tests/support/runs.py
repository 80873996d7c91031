"""A run on all devices of a fresh worker: placed, or running."""

from typing import Any

from support.core import Core, Member, Worker


def placed(core: Core, **changes: Any) -> tuple[str, Worker]:
    """A run that is placed on a fresh worker and not yet claimed."""
    worker = core.add_worker()
    run = core.submit(resources={"replicas": 8}, **changes)
    core.schedule()
    return run.id, worker


def running(core: Core, **changes: Any) -> tuple[str, Member]:
    """A run that runs on a fresh worker."""
    run_id, worker = placed(core, **changes)
    return run_id, worker.take().start()
