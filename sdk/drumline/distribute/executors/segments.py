"""Cuts a replica's jaxpr into stages: jitted pieces, and between them what the host does.

Where the equations only depend on each other's results, they are put in order of the collectives they wait for: all
computation that needs k rounds of collectives makes one piece, and the sums of one round are done together. Where refs
tie equations to their order, the order stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from drumline.distribute.tracing import jaxprs
from drumline.distribute.tracing.instrumentation import SUMS
from drumline.distribute.tracing.uniformity import COLLECTIVES

#: Equations that the host executes: collectives, and refs, which live across the pieces.
_HOST_PRIMITIVES = COLLECTIVES | {"new_ref", "freeze"}


@dataclass(frozen=True, slots=True)
class Piece:
    """Equations without collectives, jitted."""

    call: Any
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class HostStage:
    """One equation for the host, or several sums that are done together."""

    eqns: tuple[Any, ...]


def cut(jaxpr: Any, compiled: Callable[[Any], Any], *, by_rounds: bool) -> list[Piece | HostStage]:
    """Stages of one jaxpr, each piece returning only what later stages or the outputs use, and made a program by
    ``compiled``.
    """
    groups = _rounds(jaxpr) if by_rounds and not _has_refs(jaxpr) else _in_order(jaxpr)
    stages: list[Piece | HostStage] = []
    live = {atom for atom in jaxpr.outvars if not jaxprs.is_literal(atom)}
    for is_host, eqns in reversed(groups):
        made = {var: None for eqn in eqns for var in eqn.outvars}
        used = {atom: None for eqn in eqns for atom in eqn.invars if not jaxprs.is_literal(atom) and atom not in made}
        if is_host:
            stages.append(HostStage(tuple(eqns)))
        else:
            outputs = tuple(var for var in made if var in live)
            stages.append(Piece(compiled(jaxprs.segment(eqns, tuple(used), outputs, jaxpr)), tuple(used), outputs))
        live = (live - made.keys()) | used.keys()
    stages.reverse()
    return stages


def only_exchanges(jaxpr: Any) -> bool:
    """Tells whether all the host does is collectives: no loop or branch around one, no ref."""
    for eqn in jaxpr.eqns:
        if not _needs_host(eqn) or eqn.primitive.name in COLLECTIVES:
            continue
        if eqn.primitive.name in ("new_ref", "freeze", "cond", "scan", "while"):
            return False
        if not all(only_exchanges(inner) for inner in jaxprs.subjaxprs(eqn)):
            return False
    return True


def collective_rounds(jaxpr: Any) -> list[tuple[str, int]]:
    """Name and round of each host equation. Replicas whose lists are equal can go by rounds together."""
    rounds = _round_of_each(jaxpr)
    return [(eqn.primitive.name, rounds[i]) for i, eqn in enumerate(jaxpr.eqns) if _needs_host(eqn)]


def _in_order(jaxpr: Any) -> list[tuple[bool, list[Any]]]:
    groups: list[tuple[bool, list[Any]]] = []
    for eqn in jaxpr.eqns:
        is_host = _needs_host(eqn)
        if not is_host and groups and not groups[-1][0]:
            groups[-1][1].append(eqn)
        else:
            groups.append((is_host, [eqn]))
    return groups


def _rounds(jaxpr: Any) -> list[tuple[bool, list[Any]]]:
    pieces: dict[int, list[Any]] = {}
    hosts: dict[int, list[list[Any]]] = {}
    for eqn, number in zip(jaxpr.eqns, _round_of_each(jaxpr), strict=True):
        if not _needs_host(eqn):
            pieces.setdefault(number, []).append(eqn)
            continue
        bundles = hosts.setdefault(number, [])
        bundle = next((one for one in bundles if _go_together(one[0], eqn)), None)
        if bundle is None:
            bundles.append([eqn])
        else:
            bundle.append(eqn)
    groups: list[tuple[bool, list[Any]]] = []
    for number in sorted(pieces.keys() | hosts.keys()):
        if number in pieces:
            groups.append((False, pieces[number]))
        groups.extend((True, bundle) for bundle in hosts.get(number, []))
    return groups


def _round_of_each(jaxpr: Any) -> list[int]:
    """How many rounds of host equations each equation waits for."""
    known: dict[Any, int] = {}
    rounds = []
    for eqn in jaxpr.eqns:
        number = max((known.get(atom, 0) for atom in _variables(eqn.invars)), default=0)
        rounds.append(number)
        known.update(dict.fromkeys(eqn.outvars, number + _needs_host(eqn)))
    return rounds


def _go_together(one: Any, other: Any) -> bool:
    return one.primitive is other.primitive and one.primitive.name in SUMS and one.params == other.params


def _has_refs(jaxpr: Any) -> bool:
    return any(hasattr(var.aval, "inner_aval") for eqn in jaxpr.eqns for var in (*_variables(eqn.invars), *eqn.outvars))


def _needs_host(eqn: Any) -> bool:
    if eqn.primitive.name in _HOST_PRIMITIVES:
        return True
    return any(jaxprs.contains(inner, COLLECTIVES) for inner in jaxprs.subjaxprs(eqn))


def _variables(atoms: Sequence[Any]) -> Iterable[Any]:
    return (atom for atom in atoms if not jaxprs.is_literal(atom))
