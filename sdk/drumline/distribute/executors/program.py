"""The program of a replica set in segments: jitted ones, and between them those of the host, above all collectives."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from drumline.distribute.errors import UnsupportedError
from drumline.distribute.executors.refs import without_plain_refs
from drumline.distribute.executors.rendezvous import Request
from drumline.distribute.executors.replica_set import ReplicaSet
from drumline.distribute.executors.segments import Segment, cut_segments
from drumline.distribute.tracing import jaxprs
from drumline.distribute.tracing.uniformity import COLLECTIVES

#: Yields at each collective, one request per replica; is sent one list of results per replica, and returns as many.
Run = Generator[list["Request"], list[list[Any]], list[list[Any]]]
_Evaluation = Generator["Request", list[Any], list[Any]]


class ReplicaProgram:
    """A jaxpr of a replica set in segments: jitted ones, and equations that the host executes.

    Several replicas only where the host executes nothing but collectives (:func:`segments.has_only_collectives`).
    """

    def __init__(self, closed: Any, constants: Sequence[Any], replica_set: ReplicaSet, *, by_level: bool) -> None:
        self.replica_set = replica_set
        self._device = replica_set.devices[0]
        self._by_level = by_level
        self._jaxpr = replica_set.with_replica_numbers(without_plain_refs(closed.jaxpr))
        self._dtypes = [var.aval.dtype for var in self._jaxpr.invars[len(constants) :]]
        self._constants = [
            replica_set.join(jax.device_put([value] * len(replica_set.devices), list(replica_set.devices)), None)
            for value in constants
        ]
        self._segments: dict[int, list[Any]] = {}

    def run(self, inputs: Sequence[Sequence[Any]]) -> Run:
        """``inputs``: per replica its values, on its device, without the constants."""
        replica_set = self.replica_set
        columns = zip(*inputs, strict=True)
        joined = [replica_set.join(column, dtype) for column, dtype in zip(columns, self._dtypes, strict=True)]
        evaluation = self._evaluate(self._jaxpr, (), [*self._constants, *joined])
        results: list[Any] | None = None
        while True:
            try:
                request = evaluation.send(results)  # type: ignore[arg-type]  # None starts a generator
            except StopIteration as stop:
                outputs = jaxprs.without_literals(self._jaxpr, stop.value)
                return [
                    [jax.device_put(value, device) if isinstance(value, np.ndarray) else value for value in own]
                    for own, device in zip(self._per_replica(outputs), replica_set.devices, strict=True)
                ]
            sent = yield [Request(request.eqns, operands) for operands in self._per_replica(request.operands)]
            results = [replica_set.join(column, None) for column in zip(*sent, strict=True)]

    def _per_replica(self, values: Sequence[Any]) -> list[list[Any]]:
        columns = [self.replica_set.split(value) for value in values]
        return [[column[m] for column in columns] for m in range(len(self.replica_set.replicas))]

    def _evaluate(self, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Any]) -> _Evaluation:
        env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        env.update(zip(jaxpr.invars, inputs, strict=True))

        def read(atom: Any) -> Any:
            return atom.val if jaxprs.is_literal(atom) else env[atom]

        for part in self._plan(jaxpr):
            if isinstance(part, Segment):
                results = part.call(*[read(var) for var in part.inputs])
                env.update(zip(part.outputs, results, strict=True))
            elif len(part.eqns) == 1:
                (eqn,) = part.eqns
                results = yield from self._equation(eqn, [read(atom) for atom in eqn.invars])
                env.update(zip(eqn.outvars, results, strict=True))
            else:
                sources = [(eqn, atom) for eqn in part.eqns for atom in eqn.invars]
                made = [var for eqn in part.eqns for var in eqn.outvars]
                results = yield Request(tuple(eqn for eqn, _ in sources), [read(atom) for _, atom in sources])
                env.update(zip(made, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _equation(self, eqn: Any, operands: list[Any]) -> _Evaluation:
        name = eqn.primitive.name
        if name == "new_ref":
            return [jax.new_ref(jax.device_put(operands[0], self._device))]
        if name == "freeze":
            return [jax.freeze(operands[0])]
        if name in COLLECTIVES:
            return (yield Request((eqn,) * len(operands), operands))
        if name == "cond":
            branch, consts = jaxprs.open_with_consts(eqn.params["branches"][int(operands[0])])
            return (yield from self._evaluate(branch, consts, operands[1:]))
        if name == "scan":
            return (yield from self._scan(eqn.params, operands))
        if name == "while":
            return (yield from self._while(eqn.params, operands))
        for parameter in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
            if parameter in eqn.params:
                inner, consts = jaxprs.open_with_consts(eqn.params[parameter])
                return (yield from self._evaluate(inner, consts, operands))
        raise UnsupportedError(
            f"a collective inside {name} at {jaxprs.source_line(eqn)} can't be done for replicas of different shapes; "
            "move it out, or use drop_remainder=True so that all batches are even"
        )

    def _scan(self, params: dict[str, Any], operands: list[Any]) -> _Evaluation:
        body, consts = jaxprs.open_with_consts(params["jaxpr"])
        fixed, carried = jaxprs.scan_counts(params)
        constants, carry, xs = operands[:fixed], operands[fixed : fixed + carried], operands[fixed + carried :]
        order = range(params["length"])
        collected: list[list[Any]] = []
        for i in reversed(order) if params["reverse"] else order:
            results = yield from self._evaluate(body, consts, [*constants, *carry, *[x[i] for x in xs]])
            carry = results[:carried]
            collected.append(results[carried:])
        if params["reverse"]:
            collected.reverse()
        return [*carry, *(jnp.stack(column) for column in zip(*collected, strict=True))]

    def _while(self, params: dict[str, Any], operands: list[Any]) -> _Evaluation:
        cond, cond_closed = jaxprs.open_with_consts(params["cond_jaxpr"])
        body, body_closed = jaxprs.open_with_consts(params["body_jaxpr"])
        nc, nb = params["cond_nconsts"], params["body_nconsts"]
        cond_consts, body_consts, carry = operands[:nc], operands[nc : nc + nb], operands[nc + nb :]
        while True:
            (continues,) = yield from self._evaluate(cond, cond_closed, [*cond_consts, *carry])
            if not bool(continues):
                return list(carry)
            carry = yield from self._evaluate(body, body_closed, [*body_consts, *carry])

    def _plan(self, jaxpr: Any) -> list[Any]:
        # By identity: this program's own equations keep the jaxpr alive.
        segments = self._segments.get(id(jaxpr))
        if segments is None:
            segments = self._segments[id(jaxpr)] = cut_segments(
                jaxpr, self.replica_set.compile, by_level=self._by_level
            )
        return segments
