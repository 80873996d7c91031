"""Which values of a traced step are provably the same on every replica.

Uniform are: broadcast arguments, mirrored variables, constants, and what collectives over all replicas give out. Not
uniform are split arguments, per-replica variables and the replica id. What only depends on uniform values is uniform.

Two uses: an aggregated write of a uniform value needs no second all-reduce, and a collective under a predicate or trip
count that differs between replicas is found before XLA would abort the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drumline.distribute.combine.primitives import aggregate_p, gather_components_p, return_gradients_p
from drumline.distribute.errors import CollectiveError, InvalidValueError
from drumline.distribute.tracing import jaxprs
from drumline.distribute.values.per_replica import REPLICA_AXIS

#: Collectives whose result is the same on every replica.
UNIFORM_RESULT = frozenset({"psum", "psum_invariant", "pmax", "pmin", "all_gather", "all_gather_invariant"})
COLLECTIVES = UNIFORM_RESULT | {
    "reduce_scatter",
    "ppermute",
    "all_to_all",
    aggregate_p.name,
    gather_components_p.name,
    return_gradients_p.name,
}
_CALLS = frozenset({"jit", "pjit", "closed_call", "core_call", "remat", "checkpoint", "custom_jvp_call"})


def mark_uniform(
    closed: Any, uniform_inputs: Sequence[bool], *, num_replicas: int | None = None
) -> tuple[Any, list[bool]]:
    """The jaxpr with its aggregations of uniform values marked so, and which outputs are uniform.

    Raises CollectiveError for a collective that not every replica would reach, or may not: where a value is split over
    logical devices, XLA adds collectives anywhere; InvalidValueError for a value that replicas had to agree about and
    may not. ``num_replicas``: a single one reaches all of its own.
    """
    analysis = _Analysis()
    outputs = analysis.visit(closed.jaxpr, [True] * len(closed.jaxpr.constvars), list(uniform_inputs))
    if num_replicas != 1:
        analysis.refuse_split_paths()
    uniform = analysis.uniform_aggregations
    for key, refusal in analysis.refusals.items():
        if not uniform[key]:
            raise InvalidValueError(refusal)

    def change(eqn: Any) -> Any:
        if eqn.primitive is not aggregate_p or not uniform.get(_identity(eqn), False):
            return eqn
        return eqn.replace(params={**eqn.params, "uniform": True})

    return closed.replace(jaxpr=jaxprs.map_equations(closed.jaxpr, change)), outputs


def _identity(eqn: Any) -> int:
    return id(eqn.outvars[0])


class _Analysis:
    """One forward pass; loops run to a fixed point. Refs are uniform until something not uniform is written."""

    def __init__(self) -> None:
        self.uniform_aggregations: dict[int, bool] = {}
        self.refusals: dict[int, str] = {}  # of values that must be uniform
        self._first_split: str | None = None
        self._first_differing_guard: str | None = None
        self._differing_guard: str | None = None

    def refuse_split_paths(self) -> None:
        """CollectiveError where a value is split and replicas may go different ways."""
        if self._first_split is not None and self._first_differing_guard is not None:
            raise CollectiveError(
                f"the step splits a value over logical devices at {self._first_split}, and "
                f"{self._first_differing_guard} can differ between replicas: XLA exchanges parts of split values where "
                "it needs them, and replicas that take another way would leave the others waiting. Make the condition "
                "the same on all replicas (all_reduce it first), compute both ways and choose by jnp.where, or split "
                "in a step of its own"
            )

    def visit(self, jaxpr: Any, consts: Sequence[bool], inputs: Sequence[bool]) -> list[bool]:
        env: dict[Any, bool] = dict(zip(jaxpr.constvars, consts, strict=True))
        env.update(zip(jaxpr.invars, inputs, strict=True))
        for eqn in jaxpr.eqns:
            operands = [jaxprs.is_literal(var) or env[var] for var in eqn.invars]
            results, operands_after = self._equation(eqn, operands)
            env.update(zip(eqn.outvars, results, strict=True))
            for var, after in zip(eqn.invars, operands_after, strict=True):
                if not jaxprs.is_literal(var) and not after and _is_ref(var):
                    env[var] = False
        self._refs_after = [env[var] for var in jaxpr.invars]
        return [jaxprs.is_literal(var) or env[var] for var in jaxpr.outvars]

    def _equation(self, eqn: Any, operands: list[bool]) -> tuple[list[bool], list[bool]]:
        name, count = eqn.primitive.name, len(eqn.outvars)
        if eqn.primitive is gather_components_p:
            return [True] * count, operands
        if name in COLLECTIVES and eqn.primitive is not return_gradients_p and over_replicas(eqn):
            return self._collective(eqn, operands), operands
        if name == "axis_index":
            return [REPLICA_AXIS not in _names(eqn.params["axis_name"])], operands
        if name in ("swap", "addupdate"):
            after = all(operands)
            return [after] * count, [after, *operands[1:]]
        if name == "cond":
            return self._cond(eqn, operands)
        if name == "while":
            return self._while(eqn, operands)
        if name == "scan":
            return self._scan(eqn, operands)
        return self._other(eqn, operands)

    def _other(self, eqn: Any, operands: list[bool]) -> tuple[list[bool], list[bool]]:
        """A call, or what only computes."""
        name, count, noted = eqn.primitive.name, len(eqn.outvars), self._first_differing_guard
        if name == "sharding_constraint" and _splits(eqn):
            self._first_split = self._first_split or jaxprs.source_line(eqn)
        inner = list(jaxprs.subjaxprs(eqn))
        if inner and (name in _CALLS or len(inner[0].invars) == len(operands)):
            results = self.visit(inner[0], [True] * len(inner[0].constvars), operands)
            if name == "shard_map":  # in which nothing is left for XLA to exchange
                self._first_differing_guard = noted
            if len(results) == count:
                return results, self._refs_after
        return [all(operands)] * count, [all(operands)] * len(operands) if inner else operands

    def _collective(self, eqn: Any, operands: list[bool]) -> list[bool]:
        if self._differing_guard is not None:
            raise CollectiveError(
                f"{eqn.primitive.name} at {jaxprs.source_line(eqn)} lies under {self._differing_guard}, which can "
                "differ between replicas: those that skip it would leave the others waiting. Make the condition "
                "the same on all replicas (all_reduce it first), or move the collective out"
            )
        if eqn.primitive is aggregate_p:
            key = _identity(eqn)
            self.uniform_aggregations[key] = operands[0] and self.uniform_aggregations.get(key, True)
            if eqn.params["refusal"] is not None:
                self.refusals[key] = eqn.params["refusal"]
            return [True]
        groups = eqn.params.get("axis_index_groups")
        return [eqn.primitive.name in UNIFORM_RESULT and groups is None] * len(eqn.outvars)

    def _guard(self, eqn: Any, what: str, is_uniform: bool) -> str | None:
        if is_uniform or self._differing_guard is not None:
            return self._differing_guard
        guard = f"{what} at {jaxprs.source_line(eqn)}"
        self._first_differing_guard = self._first_differing_guard or guard
        return guard

    def _cond(self, eqn: Any, operands: list[bool]) -> tuple[list[bool], list[bool]]:
        predicate, *inputs = operands
        outer, self._differing_guard = self._differing_guard, self._guard(eqn, "a cond", predicate)
        results, after = [predicate] * len(eqn.outvars), list(inputs)
        for branch in jaxprs.subjaxprs(eqn):
            outs = self.visit(branch, [True] * len(branch.constvars), inputs)
            results = [a and b for a, b in zip(results, outs, strict=True)]
            written = [_writes(branch, i) for i in range(len(inputs))]
            after = [a and b and (predicate or not w) for a, b, w in zip(after, self._refs_after, written, strict=True)]
        self._differing_guard = outer
        return results, [predicate, *after]

    def _while(self, eqn: Any, operands: list[bool]) -> tuple[list[bool], list[bool]]:
        cond, body = eqn.params["cond_jaxpr"].jaxpr, eqn.params["body_jaxpr"].jaxpr
        nc, nb = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
        cond_consts, body_consts, carry = operands[:nc], operands[nc : nc + nb], operands[nc + nb :]
        outer = self._differing_guard
        while True:
            before = (list(body_consts), list(carry))
            self._differing_guard = outer
            (continues,) = self.visit(cond, [True] * len(cond.constvars), [*cond_consts, *carry])
            self._differing_guard = self._guard(eqn, "a while loop", continues)
            outs = self.visit(body, [True] * len(body.constvars), [*body_consts, *carry])
            after = self._refs_after
            body_consts = [a and b for a, b in zip(body_consts, after[:nb], strict=True)]
            carry = [a and b and continues for a, b in zip(carry, outs, strict=True)]
            if (list(body_consts), list(carry)) == before:
                break
        self._differing_guard = outer
        return carry, [*cond_consts, *body_consts, *carry]

    def _scan(self, eqn: Any, operands: list[bool]) -> tuple[list[bool], list[bool]]:
        body = eqn.params["jaxpr"].jaxpr
        nc, nk = jaxprs.scan_counts(eqn.params)
        consts, carry, xs = operands[:nc], operands[nc : nc + nk], operands[nc + nk :]
        while True:
            before = (list(consts), list(carry), list(xs))
            outs = self.visit(body, [True] * len(body.constvars), [*consts, *carry, *xs])
            after = self._refs_after
            consts = [a and b for a, b in zip(consts, after[:nc], strict=True)]
            carry = [a and b for a, b in zip(carry, outs[:nk], strict=True)]
            xs = [a and b for a, b in zip(xs, after[nc + nk :], strict=True)]
            if (list(consts), list(carry), list(xs)) == before:
                return [*carry, *outs[nk:]], [*consts, *carry, *xs]


def _names(axes: Any) -> tuple[Any, ...]:
    return axes if isinstance(axes, tuple) else (axes,)


def over_replicas(eqn: Any) -> bool:
    """Tells whether a collective is one of the replicas, not of the logical devices of each."""
    return REPLICA_AXIS in _names(eqn.params.get("axes", eqn.params.get("axis_name", REPLICA_AXIS)))


def only_over_replicas(eqn: Any) -> bool:
    """Tells whether a collective names no other axis than the replicas'."""
    return set(_names(eqn.params.get("axes", eqn.params.get("axis_name", REPLICA_AXIS)))) == {REPLICA_AXIS}


def _splits(eqn: Any) -> bool:
    """Tells whether a sharding constraint does more than have a value whole on each device."""
    spec = getattr(eqn.params["sharding"], "spec", None)
    return spec is None or any(spec)


def _is_ref(var: Any) -> bool:
    return hasattr(var.aval, "inner_aval")


def _writes(jaxpr: Any, index: int) -> bool:
    var = jaxpr.invars[index]
    return any(
        var in [v for v in eqn.invars if not jaxprs.is_literal(v)]
        and (eqn.primitive.name in ("swap", "addupdate") or next(iter(jaxprs.subjaxprs(eqn)), None) is not None)
        for eqn in jaxpr.eqns
    )
