"""What a step will do, told before it runs: its collectives with their bytes, and the memory of its program."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from drumline.distribute.combine.primitives import aggregate_p
from drumline.distribute.observe import CollectiveOperation, DispatchedProgram, StepProgramRecord
from drumline.distribute.tracing import jaxprs
from drumline.distribute.tracing.instrumentation import is_instrumented, mean_by
from drumline.distribute.tracing.reduction_names import collective_name, variables_of
from drumline.distribute.tracing.uniformity import COLLECTIVES, only_over_replicas, over_replicas

if TYPE_CHECKING:
    from drumline.distribute.tracing.arguments import StepArguments
    from drumline.distribute.tracing.step import TracedStep

#: What differs between processes that traced the same: addresses of functions, and the order of sets of names.
_ADDRESS = re.compile(r"0x[0-9a-f]+")
_SET = re.compile(r"frozenset\(\{([^{}]*)\}\)")

#: Primitives by what people call them. Aggregated writes are named by their aggregation.
_KINDS: dict[str, tuple[str, str | None]] = {
    "psum": ("all_reduce", "sum"),
    "psum_invariant": ("all_reduce", "sum"),
    "pmax": ("all_reduce", "max"),
    "pmin": ("all_reduce", "min"),
    "all_gather": ("all_gather", None),
    "all_gather_invariant": ("all_gather", None),
    "reduce_scatter": ("reduce_scatter", "sum"),
    "ppermute": ("permute", None),
    "all_to_all": ("all_to_all", None),
}
_AGGREGATIONS: dict[str, tuple[str, str | None]] = {
    "MEAN": ("all_reduce", "mean"),
    "ONLY_FIRST_REPLICA": ("broadcast", None),
}

#: A collective, the variable of the jaxpr that it puts out, and its equation.
_Operation: TypeAlias = tuple[CollectiveOperation, Any, Any]


def describe_step(compiled: Any, arguments: StepArguments, step: int, replicas: int) -> StepProgramRecord:
    """The collectives of a step that was just built, and its memory where it is one program.

    Compiles the program of an SPMD step once more; a persistent compilation cache makes that cheap.
    """
    fuses_means = compiled.name != "mpmd"
    operations = _list_collectives(compiled.traced, replicas, fuses_means) if replicas > 1 else ()
    memory = compiled.memory(arguments)
    return StepProgramRecord(
        step=step,
        executor=compiled.name,
        rows=arguments.rows,
        collectives=tuple(operations),
        memory=memory,
        compilation=getattr(compiled, "compilation", None),
        steps=getattr(compiled, "steps", 1),
    )


def describe_program(
    compiled: Any, traces: Sequence[TracedStep], name: str, homes: Sequence[int], room: int = 1
) -> DispatchedProgram:
    """What a built step is, for whoever compares it with that of another process; ``name`` is the function's.

    ``homes``: the process of each replica. ``room``: of how many batches it can take at once.
    """
    replicas = len(homes)
    digest = hashlib.sha256(f"{type(compiled).__name__} {compiled.name} {room}".encode())
    for traced in traces:
        digest.update(_SET.sub(_sorted_set, _ADDRESS.sub("", str(traced.jaxpr))).encode())
    fuses_means = compiled.name != "mpmd"
    operations = _list_collectives(compiled.traced, replicas, fuses_means, homes) if replicas > 1 else ()
    return DispatchedProgram(name, digest.hexdigest()[:16], compiled.name, tuple(operations))


def _sorted_set(match: re.Match[str]) -> str:
    return ", ".join(sorted(match[1].split(", ")))


def _list_collectives(
    traced: TracedStep, replicas: int, fuses_means: bool, homes: Sequence[int] = ()
) -> Iterator[CollectiveOperation]:
    """In program order, under the names that an observer is told of them."""
    names = variables_of(traced, is_instrumented)
    for operation, out, eqn in _collectives(traced.jaxpr.jaxpr, 1, replicas, fuses_means):
        yield dataclasses.replace(operation, name=names.get(out, operation.name), crosses=_crosses(eqn, homes))


def _crosses(eqn: Any, homes: Sequence[int]) -> bool:
    """Whether any of the groups that exchange has replicas of several processes; ``homes``: of each the process."""
    groups = [range(len(homes))]
    if only_over_replicas(eqn):  # else groups count devices, and the few that there are count as all replicas
        groups = eqn.params.get("perm") or eqn.params.get("axis_index_groups") or groups
    return any(len({homes[replica] for replica in group}) > 1 for group in groups)


def _collectives(jaxpr: Any, times: int | None, replicas: int, fuses_means: bool) -> Iterator[_Operation]:
    """``times``: how often the jaxpr runs in a step, None where that depends on values."""
    for position, eqn in enumerate(jaxpr.eqns):
        is_collective = eqn.primitive.name in COLLECTIVES and over_replicas(eqn)
        if is_collective and not eqn.params.get("uniform", False):
            yield from _operations(jaxpr, position, times, replicas if fuses_means else 0)
            continue
        inner_times = _times_inside(eqn, times)
        for inner in jaxprs.subjaxprs(eqn):
            yield from _collectives(inner, inner_times, replicas, fuses_means)


def _times_inside(eqn: Any, times: int | None) -> int | None:
    if eqn.primitive.name in ("while", "cond") or times is None:
        return None
    return times * int(eqn.params["length"]) if eqn.primitive.name == "scan" else times


def _operations(jaxpr: Any, position: int, times: int | None, mean_of: int) -> Iterator[_Operation]:
    eqn = jaxpr.eqns[position]
    kind, op = _kind(eqn)
    for operand, out in zip(eqn.invars, eqn.outvars, strict=False):
        shape, dtype = tuple(operand.aval.shape), operand.aval.dtype
        is_mean = mean_of > 0 and op == "sum" and mean_by(jaxpr, position, out, mean_of) is not None
        operation = CollectiveOperation(
            name=collective_name(kind, eqn),
            kind=kind,
            op="mean" if is_mean else op,
            shape=shape,
            dtype=str(dtype),
            bytes=math.prod(shape) * int(dtype.itemsize),
            times=times,
            is_observed=is_instrumented(eqn) and times is not None,
        )
        yield operation, out, eqn


def _kind(eqn: Any) -> tuple[str, str | None]:
    if eqn.primitive is aggregate_p:
        return _AGGREGATIONS.get(str(eqn.params.get("op")), ("all_reduce", "sum"))
    return _KINDS.get(eqn.primitive.name, ("all_gather", None))
