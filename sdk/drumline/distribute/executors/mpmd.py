"""Programs without collectives, driven in lock-step by one thread: for ragged batches and unlike devices.

Each replica's jaxpr is cut at its collectives; the pieces between are jitted, once for all replicas of equal shapes
where possible. The driver runs every replica up to its next collective, does the collective, and goes on. Nothing waits
inside a device program, so replicas that reach different collectives raise CollectiveError instead of hanging.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp

from drumline.distribute.arguments import StepArguments
from drumline.distribute.combine.component_gather import (
    gather_components_p,
    meet_gather,
    meet_gradients,
    return_gradients_p,
)
from drumline.distribute.errors import CollectiveError, CollectiveShapeError
from drumline.distribute.executors import _jaxpr
from drumline.distribute.executors._refs import without_plain_refs
from drumline.distribute.executors.meeting import meet
from drumline.distribute.executors.members import Members
from drumline.distribute.executors.program import ReplicaProgram, Request
from drumline.distribute.executors.stages import collective_rounds, only_exchanges
from drumline.distribute.observe import MAX_FREQUENT_ELEMENTS, CollectiveRecord, ProgramMemory
from drumline.distribute.placement import owned
from drumline.distribute.step import TracedStep, unflatten_outputs
from drumline.distribute.taps import SUMS, tap_name
from drumline.distribute.uniformity import mark_uniform
from drumline.distribute.values import PerReplica

if TYPE_CHECKING:
    from drumline.distribute.strategy import Strategy

#: Collectives over arrays of different shapes.
_WHOLE_MEETINGS = {gather_components_p: meet_gather, return_gradients_p: meet_gradients}


class MpmdStep:
    """A step whose replicas don't all have the same program. ``traces``: each replica's, equal ones the same object."""

    name = "mpmd"

    def __init__(self, strategy: Strategy, traces: list[TracedStep]) -> None:
        self._strategy = strategy
        self._traces = traces
        distinct = {id(traced): without_plain_refs(traced.jaxpr.jaxpr) for traced in traces}
        by_rounds = len({tuple(collective_rounds(jaxpr)) for jaxpr in distinct.values()}) == 1
        groups: dict[Any, list[int]] = {}
        for replica, (traced, device) in enumerate(zip(traces, strategy.devices, strict=True)):
            alone = None if only_exchanges(distinct[id(traced)]) else replica
            groups.setdefault((id(traced), device.platform, device.device_kind, alone), []).append(replica)
        self._programs = [
            ReplicaProgram(
                traces[group[0]].jaxpr,
                traces[group[0]].constants,
                Members(group, [strategy.devices[r] for r in group]),
                by_rounds=by_rounds,
            )
            for group in groups.values()
        ]
        _check_same_tree(traces)
        self._uniform_outputs = _uniform_outputs(traces[0])

    def __call__(self, arguments: StepArguments) -> Any:
        variables = {id(v): v for traced in self._traces for v in (*traced.read, *traced.written)}
        held = {key: v.lift_components() for key, v in variables.items() if v.is_initialized}
        inputs = [
            [*(held[id(v)][r] for v in traced.read), *self._leaves(arguments, r)]
            for r, traced in enumerate(self._traces)
        ]
        results = drive(self._programs, inputs, self._strategy)
        for key, variable in variables.items():
            self._commit(variable, held.get(key, ()), results)
        return self._outputs(arguments, results)

    @property
    def program(self) -> Any:
        """The jaxpr of replica 0; what it exchanges, all exchange."""
        return self._traces[0].jaxpr.jaxpr

    def memory(self, arguments: StepArguments) -> ProgramMemory | None:
        """None: the step is many small programs."""
        return None

    def _leaves(self, arguments: StepArguments, replica: int) -> list[Any]:
        device = self._strategy.devices[replica]
        leaves = []
        for i in self._traces[replica].leaf_indices:
            leaf = arguments.leaves[i]
            leaf = leaf.values[replica] if isinstance(leaf, PerReplica) else leaf
            leaves.append(leaf if isinstance(leaf, (int, float, complex)) else jax.device_put(owned(leaf), device))
        return leaves

    def _commit(self, variable: Any, held: Sequence[Any], results: list[list[Any]]) -> None:
        components = list(held) or [None] * len(results)
        is_written = False
        for r, (traced, outputs) in enumerate(zip(self._traces, results, strict=True)):
            for written, value in zip(traced.written, outputs[traced.num_outputs :], strict=True):
                if written is variable:
                    components[r], is_written = value, True
        if is_written:
            variable.commit_components(components)

    def _outputs(self, arguments: StepArguments, results: list[list[Any]]) -> Any:
        leaves = []
        for position, leaf in enumerate(self._traces[0].output_leaves):
            column = [traced.output_leaves[position] for traced in self._traces]
            if leaf.kind == "argument" and arguments.kinds[leaf.index] == "plain":
                leaves.append(arguments.leaves[leaf.index])
                continue
            values = [self._value(arguments, r, mine, results[r]) for r, mine in enumerate(column)]
            if all(mine.kind == "static" for mine in column) and all(value is values[0] for value in values):
                leaves.append(values[0])
            elif leaf.kind == "mirrored":
                leaves.append(self._strategy.mirror(values))
            else:
                leaves.append(self._regrouped(values, leaf, arguments))
        return unflatten_outputs(self._traces[0], leaves)

    def _regrouped(self, values: list[Any], leaf: Any, arguments: StepArguments) -> Any:
        regrouped = self._strategy.regroup(values)
        is_uniform = leaf.kind == "replica" and self._uniform_outputs[leaf.index]
        if isinstance(regrouped, PerReplica) and not is_uniform:
            regrouped.batch_rows = arguments.rows
        return regrouped

    def _value(self, arguments: StepArguments, replica: int, leaf: Any, outputs: list[Any]) -> Any:
        if leaf.kind == "static":
            return leaf.value
        if leaf.kind == "argument":
            source = arguments.leaves[leaf.index]
            return source.values[replica] if isinstance(source, PerReplica) else source
        return outputs[leaf.index]


def drive(programs: Sequence[ReplicaProgram], inputs: Sequence[Sequence[Any]], strategy: Strategy) -> list[list[Any]]:
    """Brings all replicas from collective to collective until they end; returns each one's outputs."""
    runs = [program.run([inputs[r] for r in program.members.replicas]) for program in programs]
    sent: list[list[Any]] | None = None
    while True:
        requests: dict[int, Request] = {}
        ended: dict[int, list[Any]] = {}
        for program, run in zip(programs, runs, strict=True):
            replicas = program.members.replicas
            try:
                results = None if sent is None else [sent[r] for r in replicas]
                requests.update(zip(replicas, run.send(results), strict=True))  # type: ignore[arg-type]  # None starts
            except StopIteration as stop:
                ended.update(zip(replicas, stop.value, strict=True))
        if not requests:
            return [ended[replica] for replica in range(len(ended))]
        if ended:
            waiting = requests[min(requests)]
            raise CollectiveError(
                f"replicas {sorted(ended)} ended their step while others wait in {waiting.name} at "
                f"{_jaxpr.source_line(waiting.eqn)}; every replica must reach the same collectives"
            )
        sent = _meet_all([requests[replica] for replica in range(len(requests))], strategy)


def _meet_all(requests: list[Request], strategy: Strategy) -> list[list[Any]]:
    first = requests[0]
    for replica, request in enumerate(requests):
        if request.name != first.name or len(request.operands) != len(first.operands):
            raise CollectiveError(
                f"replica 0 is in {first.name} at {_jaxpr.source_line(first.eqn)} while replica {replica} is in "
                f"{request.name} at {_jaxpr.source_line(request.eqn)}; every replica must reach the same collectives"
            )
    entered_at = time.monotonic_ns()
    if first.eqn.primitive in _WHOLE_MEETINGS:
        whole = _WHOLE_MEETINGS[first.eqn.primitive]
        results = whole(first.eqn.params, [request.operands for request in requests], strategy.devices)
    else:
        results = _meet_operands(requests, strategy)
    if strategy.observer is not None:
        strategy.observer.collective(CollectiveRecord(first.name, strategy.step, entered_at, time.monotonic_ns()))
    return results


def _meet_operands(requests: list[Request], strategy: Strategy) -> list[list[Any]]:
    first = requests[0]
    columns = [[request.operands[k] for request in requests] for k in range(len(first.operands))]
    for column, eqn in zip(columns, first.eqns, strict=True):
        _check_alike(column, eqn)
    met = meet(first.name, first.eqn.params, columns, strategy)
    if first.name in SUMS and strategy.observation.wants_in_step:
        for column, result, eqn in zip(columns, met, first.eqns, strict=True):
            if jnp.size(column[0]) > MAX_FREQUENT_ELEMENTS and not strategy.observation.wants_large:
                continue
            op: Literal["sum", "mean"] = "mean" if eqn.params.get("op") == "MEAN" else "sum"
            strategy.observation.reduced_in_step(tap_name(eqn), op, column, result[0])
    return [[column[r] for column in met] for r in range(len(requests))]


def _check_alike(operands: list[Any], eqn: Any) -> None:
    shapes = [(jnp.shape(value), jnp.result_type(value)) for value in operands]
    if any(shape != shapes[0] for shape in shapes):
        raise CollectiveShapeError(
            f"{eqn.primitive.name} at {_jaxpr.source_line(eqn)} got a different shape or dtype per replica: "
            f"{', '.join(f'{dtype}{list(shape)}' for shape, dtype in shapes)}; reduce over the batch axis first, or "
            "use all_gather"
        )


def _check_same_tree(traces: list[TracedStep]) -> None:
    for replica, traced in enumerate(traces):
        if traced.output_tree != traces[0].output_tree:
            raise CollectiveShapeError(
                f"the step returned {traces[0].output_tree[0]} on replica 0 and {traced.output_tree[0]} on replica "
                f"{replica}; return the same structure on every replica"
            )


def _uniform_outputs(traced: TracedStep) -> list[bool]:
    """Which outputs look the same on every replica, from one replica's program; good enough for a warning."""
    inputs = [variable.storage != "stacked" for variable in traced.read]
    inputs = [*[True] * len(traced.constants), *inputs, *[False] * len(traced.leaf_indices)]
    try:
        return mark_uniform(traced.jaxpr, inputs)[1]
    except CollectiveError:
        return [False] * len(traced.jaxpr.jaxpr.outvars)
