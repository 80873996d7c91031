"""Which checkpoints of a run are kept: one rule, for the server's list and for the files of the worker, which asks of
which runs nothing is needed any more.
"""

from collections.abc import Iterable
from typing import Annotated, NamedTuple

from pydantic import Field

from drumline.contracts.base import AtMost, Contract, IncarnationId, Reply, RunId
from drumline.contracts.spec import CheckpointSpec


class CheckpointKey(NamedTuple):
    """What tells a run's checkpoints apart. The greatest is the one to resume from: a later attempt's counts more."""

    fence: int
    step: int

    @property
    def path(self) -> str:
        """Where it lies below its run's directory."""
        return f"f{self.fence}/step_{self.step}"


def select_kept(checkpoints: Iterable[CheckpointKey], policy: CheckpointSpec) -> set[CheckpointKey]:
    """Those of the registered `checkpoints` that stay: the newest `keep`, and every one that `keep_every_steps` names.

    A subset of the registered ones keeps at least what of it the whole would keep: who knows less deletes less.
    """
    newest_first = sorted(checkpoints, reverse=True)
    period = policy.keep_every_steps
    forever = {key for key in newest_first if period is not None and key.step % period == 0}
    return {*newest_first[: policy.keep], *forever}


class StoredRuns(Contract):
    """Body of `POST /worker/checkpoints`: runs of which the host's store has something."""

    incarnation: IncarnationId
    runs: Annotated[tuple[RunId, ...], Field(fail_fast=True), AtMost(1_000)]


class ExpiredRuns(Reply):
    """Answer to `POST /worker/checkpoints`."""

    runs: tuple[RunId, ...]
    """Those of which nothing is needed any more: the worker deletes what it has of them."""
