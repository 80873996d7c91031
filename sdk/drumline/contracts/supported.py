"""Strategies that no worker can run yet, in one place: a program on one would end in its first moment.

What a strategy needs of hosts is no matter of this place (`drumline_server.base.shapes`).
"""

from collections.abc import Callable

from drumline.contracts.spec import MirroredSpec, StrategySpec, TpuSpec
from drumline.slices import KnownSlice, SliceError, extents


def find_unsupported(strategy: StrategySpec) -> tuple[str, str] | None:
    """The field of the strategy that nothing can run, and why with the way out; None for one that runs."""
    match strategy:
        case TpuSpec() if strategy.executor not in ("auto", "spmd"):
            return (
                "executor",
                f"tpu computes in one SPMD program; leave out executor={strategy.executor}",
            )
        case TpuSpec():
            return _find_unknown_slice(strategy)
        case MirroredSpec(batch="per_replica") if strategy.executor != "auto":
            return (
                "executor",
                f"mirrored with batch=per_replica chooses its executor itself; leave out executor={strategy.executor}",
            )
    return None


def _find_unknown_slice(strategy: TpuSpec) -> tuple[str, str] | None:
    """A field that no slice has: an extent that is none, or a topology that does not exist."""
    checks: dict[str, Callable[[], object]] = {
        "computation_shape": lambda: extents("computation_shape", strategy.computation_shape),
        "computation_stride": lambda: extents("computation_stride", strategy.computation_stride),
        "topology": lambda: strategy.topology is not None and KnownSlice.parse(strategy.topology),
    }
    for field, check in checks.items():
        try:
            check()
        except SliceError as error:
            return field, str(error)
    return None
