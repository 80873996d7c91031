"""Strategies that no worker can run yet, in one place: a program on one would end in its first moment.

What a strategy needs of hosts is no matter of this place (`drumline_server.base.shapes`).
"""

from drumline.contracts.spec import MirroredSpec, StrategySpec, TpuSpec


def find_unsupported(strategy: StrategySpec) -> tuple[str, str] | None:
    """The field of the strategy that nothing can run, and why with the way out; None for one that runs."""
    match strategy:
        case TpuSpec():
            return (
                "kind",
                "the strategy 'tpu' is not part of this version; use mirrored, central_storage or one_device, "
                "which run on TPUs too",
            )
        case MirroredSpec(batch="per_replica") if strategy.executor != "auto":
            return (
                "executor",
                f"mirrored with batch=per_replica chooses its executor itself; leave out executor={strategy.executor}",
            )
    return None
