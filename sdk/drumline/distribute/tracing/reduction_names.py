"""What collectives of a step are called: an all-reduce by the variable that its result is written into."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drumline.distribute.tracing import jaxprs
from drumline.distribute.tracing.leaf_names import leaf_of
from drumline.distribute.tracing.step import TracedStep

_READS, _WRITES = frozenset({"get"}), frozenset({"swap", "addupdate"})


def collective_name(kind: str, eqn: Any) -> str:
    """The kind, file:line of the user's code, and the leaf's path where it is one of several."""
    site, leaf = jaxprs.source_line(eqn).rpartition("/")[2], leaf_of(eqn)
    return f"{kind} {site} {leaf}" if leaf else f"{kind} {site}"


def all_reduce_name(eqn: Any) -> str:
    """What an observed all-reduce is called where no variable is written from it."""
    return collective_name("all_reduce", eqn)


def variables_of(traced: TracedStep, is_observed: Callable[[Any], bool]) -> dict[Any, str]:
    """By the variable of the jaxpr that an observed all-reduce puts out, the name of the strategy's variable."""
    eqns = traced.jaxpr.jaxpr.eqns
    names = {
        out: _variable_name(traced, position, out)
        for position, eqn in enumerate(eqns)
        if is_observed(eqn)
        for out in eqn.outvars
    }
    return {out: name for out, name in names.items() if name is not None}


def _variable_name(traced: TracedStep, position: int, out: Any) -> str | None:
    jaxpr = traced.jaxpr.jaxpr
    reached = _reached(jaxpr, position, out)
    count = len(jaxpr.outvars) - len(traced.written)
    for variable, atom in zip(traced.written, jaxpr.outvars[count:], strict=True):  # weights before their momenta
        if not jaxprs.is_literal(atom) and atom in reached:
            return variable.name
    return None


def _reached(jaxpr: Any, position: int, out: Any) -> set[Any]:
    """Values and references of the same shape that ``out`` is worked into; a norm of all gradients leads nowhere."""
    reached = {out}
    for eqn in jaxpr.eqns[position + 1 :]:
        read = [atom for atom in eqn.invars if not jaxprs.is_literal(atom) and atom in reached]
        if not read:
            continue
        if eqn.primitive.name in _WRITES:
            reached.add(eqn.invars[0])
        elif eqn.primitive.name in _READS or eqn.primitive.name == "freeze":
            reached.update(eqn.outvars)
        else:
            reached.update(var for var in eqn.outvars if var.aval.shape == out.aval.shape)
    return reached
