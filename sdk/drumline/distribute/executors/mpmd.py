"""Programs without collectives, driven in lock-step by one thread: for ragged batches and unlike devices.

Each replica's jaxpr is cut at its collectives; the segments between are jitted, once for all replicas of equal shapes
where possible. The driver runs every replica up to its next collective, does the collective, and resumes them. Nothing
waits inside a device program, so replicas that reach different collectives raise CollectiveError instead of hanging.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from drumline.distribute.base.runtime import copy_if_host
from drumline.distribute.combine.cross_device_ops import CrossDeviceOps
from drumline.distribute.errors import CollectiveError, CollectiveShapeError
from drumline.distribute.executors.agreement import refuse_disagreement
from drumline.distribute.executors.program import ReplicaProgram
from drumline.distribute.executors.refs import without_plain_refs
from drumline.distribute.executors.rendezvous import Rendezvous, Request
from drumline.distribute.executors.replica_set import ReplicaSet
from drumline.distribute.executors.segments import collective_levels, has_only_collectives
from drumline.distribute.observe import ProgramMemory
from drumline.distribute.observe.observation import Observation
from drumline.distribute.tracing import jaxprs
from drumline.distribute.tracing.arguments import StepArguments
from drumline.distribute.tracing.instrumentation import has_instrumented, is_instrumented, means_of
from drumline.distribute.tracing.reduction_names import variables_of
from drumline.distribute.tracing.step import TracedStep, unflattener
from drumline.distribute.tracing.uniformity import mark_uniform
from drumline.distribute.values.device_group import DeviceGroup
from drumline.distribute.values.per_replica import PerReplica


class MpmdStep:
    """A step whose replicas don't all have the same program. ``traces``: each replica's, equal ones the same object."""

    name = "mpmd"

    def __init__(
        self,
        group: DeviceGroup,
        ops: CrossDeviceOps | None,
        observation: Observation | None,
        traces: list[TracedStep],
        arguments: StepArguments,
    ) -> None:
        self._group = group
        self._traces = traces
        _check_same_tree(traces)
        refuse_disagreement(traces, arguments)
        self._unflatten = unflattener(traces[0])
        self._uniform_outputs = _uniform_outputs(traces[0], arguments)
        self._make_programs(ops, observation)

    def _make_programs(self, ops: CrossDeviceOps | None, observation: Observation | None) -> None:
        """One for each set of replicas whose programs, and kinds of devices, are equal."""
        assert ops is not None
        assert observation is not None
        self._observation = observation
        self._has_large = has_instrumented(self._traces[0].jaxpr.jaxpr, large=True)
        traces, group = self._traces, self._group
        names, means = variables_of(traces[0], is_instrumented), means_of(traces[0], len(traces))
        self._rendezvous = Rendezvous(group.devices, ops, observation, names, means)
        distinct = {id(traced): without_plain_refs(traced.jaxpr.jaxpr) for traced in traces}
        # Sums of one level go in one exchange only if all replicas come to the same ones.
        by_level = len({tuple(collective_levels(jaxpr)) for jaxpr in distinct.values()}) == 1
        alike: dict[Any, list[int]] = {}
        for replica, (traced, device) in enumerate(zip(traces, group.devices, strict=True)):
            # The host runs loops and refs for one replica at a time, so such a replica is a set by itself.
            alone = None if has_only_collectives(distinct[id(traced)]) else replica
            alike.setdefault((id(traced), device.platform, device.device_kind, alone), []).append(replica)
        self._programs = [
            ReplicaProgram(
                traces[replicas[0]].jaxpr,
                traces[replicas[0]].constants,
                ReplicaSet(replicas, [group.devices[r] for r in replicas]),
                by_level=by_level,
            )
            for replicas in alike.values()
        ]

    def __call__(self, arguments: StepArguments) -> Any:
        is_due = self._has_large and self._observation.wants_large
        return self._observation.large.send(self, lambda _: self._run(arguments), 1, is_due=is_due)

    def _run(self, arguments: StepArguments) -> Any:
        variables = {id(v): v for traced in self._traces for v in (*traced.read, *traced.written)}
        held = {key: v.lift_components() for key, v in variables.items() if v.is_initialized}
        inputs = [
            [*(held[id(v)][r] for v in traced.read), *self._leaves(arguments, r)]
            for r, traced in enumerate(self._traces)
        ]
        results = drive(self._programs, inputs, self._rendezvous)
        # Only now that every replica has ended: an error before this leaves all variables as they were.
        for key, variable in variables.items():
            self._commit(variable, held.get(key, ()), results)
        self._observation.large.wait(results)
        return self._outputs(arguments, results)

    def list_donated(self, arguments: StepArguments) -> Sequence[Any]:
        """Arguments that it took for good: none, as replicas share what they are given."""
        return ()

    @property
    def traced(self) -> TracedStep:
        """The step of replica 0; all replicas run the same collectives."""
        return self._traces[0]

    def memory(self, arguments: StepArguments) -> ProgramMemory | None:
        """None: the step is many small programs."""
        return None

    def _leaves(self, arguments: StepArguments, replica: int) -> list[Any]:
        device = self._group.devices[replica]
        leaves = []
        for i in self._traces[replica].leaf_indices:
            leaf = arguments.leaves[i]
            leaf = leaf.values[replica] if isinstance(leaf, PerReplica) else leaf
            leaves.append(
                leaf if isinstance(leaf, (int, float, complex)) else jax.device_put(copy_if_host(leaf), device)
            )
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
                leaves.append(self._group.mirror(values))
            else:
                leaves.append(self._regroup(values, leaf, arguments))
        return self._unflatten(leaves)

    def _regroup(self, values: list[Any], leaf: Any, arguments: StepArguments) -> Any:
        regrouped = self._group.regroup(values)
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


def drive(
    programs: Sequence[ReplicaProgram], inputs: Sequence[Sequence[Any]], rendezvous: Rendezvous
) -> list[list[Any]]:
    """Brings all replicas from collective to collective until they end; returns each one's outputs."""
    runs = [program.run([inputs[r] for r in program.replica_set.replicas]) for program in programs]
    sent: list[list[Any]] | None = None
    while True:
        requests: dict[int, Request] = {}
        ended: dict[int, list[Any]] = {}
        for program, run in zip(programs, runs, strict=True):
            replicas = program.replica_set.replicas
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
                f"{jaxprs.source_line(waiting.eqn)}; every replica must reach the same collectives"
            )
        sent = rendezvous.exchange([requests[replica] for replica in range(len(requests))])


def _check_same_tree(traces: list[TracedStep]) -> None:
    for replica, traced in enumerate(traces):
        if traced.output_tree != traces[0].output_tree:
            raise CollectiveShapeError(
                f"the step returned {traces[0].output_tree[0]} on replica 0 and {traced.output_tree[0]} on replica "
                f"{replica}; return the same structure on every replica"
            )


def _uniform_outputs(traced: TracedStep, arguments: StepArguments) -> list[bool]:
    """Which outputs look the same on every replica, from one replica's program; good enough for a warning."""
    inputs = [variable.storage != "stacked" for variable in traced.read]
    inputs = [*[True] * len(traced.constants), *inputs, *(arguments.kinds[i] == "plain" for i in traced.leaf_indices)]
    try:
        return mark_uniform(traced.jaxpr, inputs)[1]
    except CollectiveError:
        return [False] * len(traced.jaxpr.jaxpr.outvars)
