"""Runs of several attempts."""

from drumline.contracts.reasons import EndReason
from drumline.contracts.states import RunState
from support.core import Core, Member, Worker


def again(core: Core, worker: Worker, run_id: str, member: Member) -> Member:
    """The run's program is killed and started once more."""
    member.end(EndReason.KILLED, signal=9)
    while core.run(run_id).state is RunState.RETRY_WAIT:
        core.clock.advance(1)
        worker.beat()
        core.reap()
    core.schedule()
    return worker.take().start()
