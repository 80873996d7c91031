"""What the launcher does once, so that none of its forks has to: imports, and JAX's first looks around.

No backend may start here: its threads would be lost in every fork.
"""

import logging
from contextlib import suppress
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any

from drumline._preload import without_collection


def warm_up() -> None:
    """Imports what forks use, and lets JAX find and compile (regular expressions, not programs) what it keeps."""
    with without_collection():
        import grain  # noqa: F401
        import jaxlib.mlir.dialects.builtin  # noqa: F401 - JAX imports it and the next no sooner than it lowers a first program
        import jaxlib.mlir.dialects.mhlo  # noqa: F401

        import drumline_worker.launcher.devices  # noqa: F401
        import drumline_worker.runner.runner  # noqa: F401

        _trace()
        if not _has_plugins():
            _finish_search_for_plugins()
    _leave_logging_to_programs()


def _leave_logging_to_programs() -> None:
    """A library that logs through absl while it is imported gives the root logger a handler, as if a program had asked
    for one: the `logging.basicConfig` of a program would then change nothing.
    """
    root = logging.getLogger()
    for handler in (*root.handlers,):
        root.removeHandler(handler)


def _trace() -> None:
    """The first trace of a process takes some ten times as long as others; so does the first look at its sources."""
    import jax
    from jax.sharding import AbstractMesh, AxisType, PartitionSpec

    def step(x: Any) -> Any:  # Any: an array, traced
        return jax.lax.psum(2.0 * x, "replica")

    mesh = AbstractMesh((2,), ("replica",), axis_types=(AxisType.Auto,))
    mapped = jax.shard_map(step, mesh=mesh, in_specs=PartitionSpec("replica"), out_specs=PartitionSpec())
    traced = jax.make_jaxpr(jax.jit(mapped))(jax.ShapeDtypeStruct((2,), "float32"))
    traced.pretty_print(source_info=True)


def _has_plugins() -> bool:
    return find_spec("jax_plugins") is not None or bool(entry_points(group="jax_plugins"))


def _finish_search_for_plugins() -> None:
    """Where JAX has no plugins, this question makes it search the metadata of all that is installed, once and for all.

    A plugin would load a driver, which is for the fork that uses it.
    """
    from jax.experimental import topologies

    with suppress(NotImplementedError):
        topologies.get_topology_desc(platform="cpu")
