"""One traced step: a function of one replica's view, turned into a jaxpr that every executor understands.

Inputs of the jaxpr: closed-over arrays, the values of the variables it uses, then the array leaves of the arguments.
Outputs: the array leaves the function returned, then the new values of the variables it wrote. The axis ``replica`` is
bound, so that ``lax.psum(x, "replica")`` means what it means under pmap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import get_opaque_trace_state

from drumline.distribute.contexts import context
from drumline.distribute.contexts.step_trace import StepTrace, next_token, trace_token
from drumline.distribute.errors import InvalidValueError
from drumline.distribute.tracing import jaxprs
from drumline.distribute.tracing.arguments import StepArguments, abstract, component_of
from drumline.distribute.tracing.leaf_names import parameter_names
from drumline.distribute.tracing.replica_context import ReplicaContext
from drumline.distribute.tracing.replica_traces import ReplicaTraces
from drumline.distribute.tracing.row_weights import RowsMark
from drumline.distribute.values.indexed_slices import is_slices
from drumline.distribute.values.per_replica import REPLICA_AXIS, join_slices
from drumline.distribute.variables.owner import VariableOwner
from drumline.distribute.variables.variable import Variable


class MirroredMark:
    """What :func:`mirrored` returns: outputs that the step promises to be equal on all replicas."""

    __slots__ = ("tree",)

    def __init__(self, tree: Any) -> None:
        self.tree = tree


def mirrored(tree: Any) -> Any:
    """Marks outputs of a step that are the same on every replica: they leave ``run`` as one replicated ``jax.Array``.

    Outside a step the value is returned as it is.
    """
    return MirroredMark(tree) if context.current_trace() is not None else tree


@dataclass(frozen=True, slots=True)
class OutputLeaf:
    """How one output leaf is rebuilt: jaxpr output ``index``, argument leaf ``index``, or ``value`` itself."""

    kind: Literal["replica", "mirrored", "argument", "static"]
    index: int = -1
    value: Any = None


@dataclass(slots=True)
class TracedStep:
    """The jaxpr of a step and how its inputs and outputs map to variables, arguments and the returned tree."""

    jaxpr: Any
    constants: list[Any]
    read: list[Variable]
    written: list[Variable]
    created: list[Variable]
    leaf_indices: list[int]
    output_tree: Any = None
    output_leaves: list[OutputLeaf] = field(default_factory=list)
    num_outputs: int = 0
    returns_slices: bool = False
    mirrored_outputs: set[int] = field(default_factory=set)
    uniform_outputs: list[bool] = field(default_factory=list)
    """Which outputs are provably the same on every replica; empty while nobody has looked."""
    row_outputs: set[int] = field(default_factory=set)
    """Which outputs have a row for each row of the batch, as ``dist.rows`` says."""
    minds_row_weights: bool = False
    """Whether the step knows that rows of its batch may not count."""
    parameters: tuple[str, ...] = ()
    """The names of the function's parameters, by place."""
    unmarked: Any = None
    """The jaxpr as it was traced, where the executor has a changed one."""


class StepTracer:
    """Traces one call of a step. ``made_before``: the variables that earlier traces of the function made."""

    def __init__(
        self, owner: VariableOwner, fn: Callable[..., Any], arguments: StepArguments, made_before: list[Variable]
    ) -> None:
        self._owner = owner
        self._fn = fn
        self._arguments = arguments
        self._made_before = made_before

    def trace_once(self) -> TracedStep:
        """One trace that serves all replicas."""
        return self._trace(StepTrace(self._owner, None), self._made_before, [], None)

    def trace_replicas(self, *, is_shared: bool) -> list[TracedStep]:
        """Each replica's trace, for its own shapes. ``is_shared``: replicas of equal shapes have the same one; raises
        ReplicaNumberNeeded, or what JAX raises for a number it doesn't know, where that can't be.

        Variables made by the first trace are the others' too.
        """
        replicas = range(self._owner.num_replicas_in_sync)
        signatures = [self._arguments.own_signature(r) if is_shared else r for r in replicas]
        distinct = list(dict.fromkeys(signatures))
        position = [distinct.index(signature) for signature in signatures]  # of each replica's trace
        created: list[Variable] = []

        def trace_one(index: int) -> TracedStep:
            def exchange(name: str, payload: Any) -> list[Any]:
                answers = traces.exchange(index, name, payload)
                return [answers[p] for p in position]

            known, made = (self._made_before, created) if index == 0 else (created, [])
            replica = position.index(index)
            trace = StepTrace(self._owner, replica, is_shared=is_shared)
            trace.exchange = exchange
            return self._trace(trace, known, made, None if is_shared else replica)

        traces = ReplicaTraces(trace_one, [position.index(index) for index in range(len(distinct))])
        results = traces.run()
        return [results[p] for p in position]

    def _trace(
        self, trace: StepTrace, made_before: list[Variable], created: list[Variable], number: int | None
    ) -> TracedStep:
        """Runs the function once on abstract values. ``number``: the replica's, where its Python may know it."""
        variables = self._owner.live_variables()
        trace.made_before, trace.created = made_before, created
        arguments, replica = self._arguments, trace.replica
        indices = [i for i in range(len(arguments.leaves)) if arguments.is_traced(i, replica)]
        traced = TracedStep(None, [], [], [], trace.created, indices, parameters=parameter_names(self._fn))
        examples = [abstract(component_of(arguments.leaves[i], replica)) for i in indices]

        def body(variable_values: list[Any], leaf_values: list[Any]) -> list[Any]:
            trace.top_state = get_opaque_trace_state()  # of make_jaxpr itself; deeper is inside user transformations
            for variable, value in zip(variables, variable_values, strict=True):
                trace.add_reference(variable, value)
            returned = self._call(trace, number, indices, leaf_values)
            outputs = _describe_outputs(traced, trace, returned, dict(zip(map(id, leaf_values), indices, strict=True)))
            owned = {id(variable): variable for variable in (*variables, *trace.created)}
            traced.written = [
                variable
                for key, variable in owned.items()
                if key in trace.written or any(variable is made for made in trace.created)
            ]
            traced.num_outputs = len(outputs)
            traced.minds_row_weights = trace.minds_row_weights
            return [*outputs, *(trace.take_final(variable) for variable in traced.written)]

        values = [jax.ShapeDtypeStruct(variable.shape, variable.dtype) for variable in variables]
        with self._owner.tracing_mesh():
            closed = jax.make_jaxpr(body, axis_env=[(REPLICA_AXIS, trace.num_replicas)])(values, examples)
        jaxprs.refuse_writes_in_checkpoint(closed.jaxpr)
        used = trace.read | trace.written
        keep = [id(variable) in used for variable in variables]
        traced.read = [variable for variable, kept in zip(variables, keep, strict=True) if kept]
        # Inputs first: refs made only from a dropped variable go with it, and constants stand before the inputs after.
        pruned = jaxprs.drop_unused_inputs(closed, [*keep, *(True for _ in indices)])
        traced.jaxpr, constants = jaxprs.hoist_constants(pruned)
        # The program keeps the numbers it was traced with: the user may change a captured array in place.
        traced.constants = [np.array(value) if isinstance(value, np.ndarray) else value for value in constants]
        return traced

    def _call(self, trace: StepTrace, number: int | None, indices: list[int], leaf_values: list[Any]) -> Any:
        """What the function returns for ``leaf_values``, the placeholders of the leaves at ``indices``."""
        arguments, owner = self._arguments, self._owner
        leaves = [component_of(leaf, trace.replica) for leaf in arguments.leaves]
        for i, value in zip(indices, leaf_values, strict=True):
            leaves[i] = value
            if arguments.kinds[i] == "plain":
                trace.note_broadcast(value)
        trace.rows = arguments.rows
        if arguments.row_weights is not None:
            trace.row_weights = leaves.pop()
        args, kwargs = jax.tree.unflatten(arguments.tree, leaves)
        entry = context.ContextEntry(owner, ReplicaContext(owner, number, trace), trace)
        own_rows = None if trace.rows is None else trace.rows[trace.replica or 0]
        with context.enter(entry), trace_token(next(next_token)), _explain_no_rows(own_rows), _explain_wrappers():
            return self._fn(*args, **kwargs)


@contextmanager
def _explain_no_rows(rows: int | None) -> Iterator[None]:
    """A batch of fewer rows than replicas leaves some without any, at which a step may fail that else works."""
    try:
        yield
    except Exception as error:
        if rows == 0:
            error.add_note(
                "This replica's part of the batch has no rows, as the batch has fewer than there are replicas. Write "
                "shapes out where they are worked out by division (reshape(len(x), -1) is), or use "
                "InputOptions(last_batch='pad') or 'drop'."
            )
        raise


@contextmanager
def _explain_wrappers() -> Iterator[None]:
    """JAX functions refuse our wrappers with a message about ``__jax_array__``; this says what to write instead."""
    try:
        yield
    except ValueError as error:
        if "__jax_array__" not in str(error):
            raise
        raise InvalidValueError(
            "a JAX function was given a variable or a per-replica value as it is: write v.value for a variable v, and "
            "pass a per-replica value in args, so that each replica gets its own component"
        ) from error


def _describe_outputs(traced: TracedStep, trace: StepTrace, returned: Any, arguments: dict[int, int]) -> list[Any]:
    marked, tree = jax.tree.flatten(returned, is_leaf=lambda node: isinstance(node, (MirroredMark, RowsMark)))
    nested = [
        jax.tree.flatten(leaf.tree) if isinstance(leaf, (MirroredMark, RowsMark)) else ([leaf], None) for leaf in marked
    ]
    traced.output_tree = (tree, [(len(leaves), subtree) for leaves, subtree in nested])
    traced.returns_slices = any(map(is_slices, jax.tree.leaves(returned, is_leaf=is_slices)))
    outputs: list[Any] = []
    for mark, (leaves, subtree) in zip(marked, nested, strict=True):
        for leaf in leaves:
            if isinstance(mark, RowsMark):
                array = jnp.asarray(leaf)
                mark.check(array, trace)
                traced.output_leaves.append(OutputLeaf("replica", len(outputs)))
                traced.row_outputs.add(len(outputs))
                outputs.append(array)
            elif isinstance(leaf, jax.core.Tracer) and id(leaf) in arguments and trace.is_same_object(leaf):
                traced.output_leaves.append(OutputLeaf("argument", arguments[id(leaf)]))
            elif isinstance(leaf, jax.core.Tracer):
                kind: Literal["mirrored", "replica"] = (
                    "mirrored" if subtree is not None or trace.is_same_object(leaf) else "replica"
                )
                traced.output_leaves.append(OutputLeaf(kind, len(outputs)))
                if kind == "mirrored":
                    traced.mirrored_outputs.add(len(outputs))
                outputs.append(leaf)
            else:
                traced.output_leaves.append(OutputLeaf("static", value=leaf))
    return outputs


def unflattener(traced: TracedStep) -> Callable[[list[Any]], Any]:
    """What makes of leaves the tree that the step returned. Without marks and slices it is JAX's own function."""
    tree, nested = traced.output_tree
    if traced.returns_slices or any(subtree is not None for _, subtree in nested):
        return partial(_unflatten_outputs, traced)
    unflatten: Callable[[list[Any]], Any] = tree.unflatten
    return unflatten


def _unflatten_outputs(traced: TracedStep, leaves: list[Any]) -> Any:
    tree, nested = traced.output_tree
    position, parts = 0, []
    for count, subtree in nested:
        part = leaves[position : position + count]
        parts.append(part[0] if subtree is None else jax.tree.unflatten(subtree, part))
        position += count
    outputs = jax.tree.unflatten(tree, parts)
    return jax.tree.map(join_slices, outputs, is_leaf=is_slices) if traced.returns_slices else outputs
