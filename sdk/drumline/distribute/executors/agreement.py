"""Whether the replicas' own programs compute the same value where they promised one.

One program proves it by its own flow of values (``tracing.uniformity``). Where each replica has a program of its own,
their constants can differ: the number of its rows, its own number. So values are numbered: two are the same where they
are made by the same operation from the same values, in each of the programs.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from drumline.distribute.combine.primitives import aggregate_p
from drumline.distribute.errors import InvalidValueError
from drumline.distribute.executors.refs import without_plain_refs
from drumline.distribute.tracing import jaxprs
from drumline.distribute.tracing.arguments import StepArguments
from drumline.distribute.tracing.step import TracedStep
from drumline.distribute.tracing.uniformity import COLLECTIVES, UNIFORM_RESULT


def refuse_disagreement(traces: Sequence[TracedStep], arguments: StepArguments) -> None:
    """InvalidValueError where replicas promised the same value, as for an update in a merge, and may not have it."""
    distinct = list({id(traced): traced for traced in traces}.values())
    if len(distinct) == 1 or not _makes_promises(distinct[0].jaxpr.jaxpr):
        return
    numbering = _Numbering()
    first, *others = [numbering.number_promises(traced, arguments) for traced in distinct]
    for promises in others:
        for (refusal, mine), (_, theirs) in zip(first, promises, strict=False):
            if mine != theirs:
                raise InvalidValueError(refusal)


def _makes_promises(jaxpr: Any) -> bool:
    return any(eqn.primitive is aggregate_p and eqn.params["refusal"] is not None for eqn in jaxpr.eqns)


class _Numbering:
    """Numbers of values; equal numbers, equal values on all replicas."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._unknown = 0

    def number_promises(self, traced: TracedStep, arguments: StepArguments) -> list[tuple[str, int]]:
        """What each promised value's refusal says, and its number, in program order."""
        jaxpr = without_plain_refs(traced.jaxpr.jaxpr)
        inputs = [
            *(self._of(("constant", _content(value))) for value in traced.constants),
            *(self._variable(variable) for variable in traced.read),
            *(self._leaf(index, arguments) for index in traced.leaf_indices),
        ]
        known = dict(zip(jaxpr.invars, inputs, strict=True))
        found: list[tuple[str, int]] = []
        exchanges = 0
        for eqn in jaxpr.eqns:
            operands = [self._atom(atom, known) for atom in eqn.invars]
            if eqn.primitive.name in COLLECTIVES or _exchanges_inside(eqn):
                exchanges += 1
                if eqn.primitive is aggregate_p and eqn.params["refusal"] is not None:
                    found.append((eqn.params["refusal"], operands[0]))
                known.update(self._number_exchange(eqn, exchanges))
                continue
            made = self._number_result(eqn, operands)
            known.update((var, self._of(("result", made, k))) for k, var in enumerate(eqn.outvars))
            # A ref holds afterwards what this equation wrote.
            known.update((atom, made) for atom in eqn.invars if hasattr(atom.aval, "inner_aval"))
        return found

    def _number_exchange(self, eqn: Any, exchange: int) -> list[tuple[Any, int]]:
        """Numbers of a collective's results: the same on all replicas, or each its own, by the collective."""
        # A loop around collectives differs between replicas in shapes only; that its results are the same, the analysis
        # of the first program has shown.
        is_same = _exchanges_inside(eqn) or eqn.primitive.name in _SAME_RESULT
        is_same = is_same and eqn.params.get("axis_index_groups") is None
        return [
            (var, self._of(("exchange", exchange, k)) if is_same else self._fresh())
            for k, var in enumerate(eqn.outvars)
        ]

    def _number_result(self, eqn: Any, operands: list[int]) -> int:
        if eqn.primitive.name == "axis_index" or any(jaxprs.contains(j, _OWN_NUMBER) for j in jaxprs.subjaxprs(eqn)):
            return self._fresh()
        params = tuple((name, _describe(value)) for name, value in sorted(eqn.params.items()))
        constants = tuple(map(_content, jaxprs.nested_constants(eqn)))
        return self._of((eqn.primitive.name, params, constants, tuple(operands)))

    def _atom(self, atom: Any, known: dict[Any, int]) -> int:
        return self._of(("constant", _content(atom.val))) if jaxprs.is_literal(atom) else known[atom]

    def _variable(self, variable: Any) -> int:
        return self._fresh() if variable.storage == "stacked" else self._of(("variable", id(variable)))

    def _leaf(self, index: int, arguments: StepArguments) -> int:
        return self._of(("argument", index)) if arguments.kinds[index] == "plain" else self._fresh()

    def _of(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _fresh(self) -> int:
        """The number of a value that is like no other."""
        self._unknown += 1
        return self._of(("unknown", self._unknown))


_OWN_NUMBER = frozenset({"axis_index"})
_SAME_RESULT = UNIFORM_RESULT | {"replica_aggregate", "replica_gather_components"}


def _exchanges_inside(eqn: Any) -> bool:
    return any(jaxprs.contains(inner, COLLECTIVES) for inner in jaxprs.subjaxprs(eqn))


def _content(value: Any) -> Hashable:
    if jnp.issubdtype(getattr(value, "dtype", np.float32), jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    array = np.asarray(value)
    return (array.dtype, array.shape, array.tobytes())


def _describe(value: Any) -> str:
    """A parameter as text, which says of a jaxpr all that it does. Functions are told by the jaxpr beside them."""
    return "a function" if callable(value) and not isinstance(value, type) else str(value)
