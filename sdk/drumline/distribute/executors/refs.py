"""Turns refs that are only read and written as a whole, at the top level of a jaxpr, into plain values.

A segment that takes no refs is dispatched several times faster. Refs used in cond, scan or nested jit stay.
"""

from __future__ import annotations

from typing import Any

import jax

from drumline.distribute.tracing import jaxprs

#: Operands before the indices.
_OPERANDS = {"get": 1, "swap": 2}


def without_plain_refs(jaxpr: Any) -> Any:
    """The open ``jaxpr`` with every plain ref replaced by the values it holds in turn."""
    plain = _plain_refs(jaxpr)
    held: dict[Any, Any] = {}  # ref -> the atom it holds now
    same: dict[Any, Any] = {}  # variable of a dropped equation -> atom
    eqns = []

    def read(atom: Any) -> Any:
        return atom if jaxprs.is_literal(atom) else same.get(atom, atom)

    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        operands = [read(atom) for atom in eqn.invars]
        if name == "new_ref" and eqn.outvars[0] in plain:
            held[eqn.outvars[0]] = operands[0]
        elif name in ("get", "freeze") and eqn.invars[0] in plain:
            same[eqn.outvars[0]] = held[eqn.invars[0]]
        elif name == "swap" and eqn.invars[0] in plain:
            same[eqn.outvars[0]] = held[eqn.invars[0]]
            held[eqn.invars[0]] = operands[1]
        else:
            eqns.append(eqn.replace(invars=operands))
    return jaxpr.replace(eqns=eqns, outvars=[read(atom) for atom in jaxpr.outvars])


def _plain_refs(jaxpr: Any) -> set[Any]:
    """Refs made here whose every use is a whole read, a whole write or the final freeze."""
    plain = {eqn.outvars[0] for eqn in jaxpr.eqns if eqn.primitive.name == "new_ref"}
    for eqn in jaxpr.eqns:
        used = {atom for atom in eqn.invars if not jaxprs.is_literal(atom) and atom in plain}
        if used and not _is_whole(eqn):
            plain -= used
    return plain


def _is_whole(eqn: Any) -> bool:
    name = eqn.primitive.name
    if name == "freeze":
        return True
    if name not in ("get", "swap"):
        return False
    transforms = jax.tree.unflatten(eqn.params["tree"], eqn.invars[_OPERANDS[name] :])
    shape = eqn.invars[0].aval.shape
    return all(_takes_all(transform, shape) for transform in transforms)


def _takes_all(transform: Any, shape: tuple[int, ...]) -> bool:
    indices = getattr(transform, "indices", None)
    if indices is None or len(indices) != len(shape):
        return False
    return all(
        getattr(index, "start", None) == 0 and index.size == size and index.stride == 1
        for index, size in zip(indices, shape, strict=True)
    )
