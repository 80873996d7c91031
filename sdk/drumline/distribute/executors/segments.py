"""Cuts a replica's jaxpr into segments: jitted ones, and between them what the host executes.

Where the equations only depend on each other's results, they are put in order of the collectives they wait for: all
computation that waits for k collectives in turn makes one segment, and the sums of one level run together. Where refs
tie equations to their order, the order stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from drumline.distribute.tracing import jaxprs
from drumline.distribute.tracing.instrumentation import SUMS
from drumline.distribute.tracing.uniformity import COLLECTIVES

#: Equations that the host executes: collectives, and refs, which live across the segments.
_HOST_PRIMITIVES = COLLECTIVES | {"new_ref", "freeze"}


@dataclass(frozen=True, slots=True)
class Segment:
    """Equations without collectives, jitted."""

    call: Any
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class HostSegment:
    """One equation for the host, or several sums that are done together."""

    eqns: tuple[Any, ...]


def cut_segments(jaxpr: Any, compile_segment: Callable[[Any], Any], *, by_level: bool) -> list[Segment | HostSegment]:
    """Segments of one jaxpr, each returning only what later ones or the outputs use, and made a program by
    ``compile_segment``.
    """
    # Levels would lose the order in which a ref is read and written.
    groups = _group_by_level(jaxpr) if by_level and not _has_refs(jaxpr) else _group_in_order(jaxpr)
    segments: list[Segment | HostSegment] = []
    live = {atom for atom in jaxpr.outvars if not jaxprs.is_literal(atom)}
    for is_host, eqns in reversed(groups):
        made = {var: None for eqn in eqns for var in eqn.outvars}
        used = {atom: None for eqn in eqns for atom in eqn.invars if not jaxprs.is_literal(atom) and atom not in made}
        if is_host:
            segments.append(HostSegment(tuple(eqns)))
        else:
            outputs = tuple(var for var in made if var in live)
            segments.append(
                Segment(compile_segment(jaxprs.segment(eqns, tuple(used), outputs, jaxpr)), tuple(used), outputs)
            )
        live = (live - made.keys()) | used.keys()
    segments.reverse()
    return segments


def has_only_collectives(jaxpr: Any) -> bool:
    """Tells whether all the host does is collectives: no loop or branch around one, no ref."""
    for eqn in jaxpr.eqns:
        if not _needs_host(eqn) or eqn.primitive.name in COLLECTIVES:
            continue
        if eqn.primitive.name in ("new_ref", "freeze", "cond", "scan", "while"):
            return False
        if not all(has_only_collectives(inner) for inner in jaxprs.subjaxprs(eqn)):
            return False
    return True


def collective_levels(jaxpr: Any) -> list[tuple[str, int]]:
    """Name and level of each host equation. Replicas whose lists are equal can go by levels together."""
    levels = _level_of_each(jaxpr)
    return [(eqn.primitive.name, levels[i]) for i, eqn in enumerate(jaxpr.eqns) if _needs_host(eqn)]


def _group_in_order(jaxpr: Any) -> list[tuple[bool, list[Any]]]:
    groups: list[tuple[bool, list[Any]]] = []
    for eqn in jaxpr.eqns:
        is_host = _needs_host(eqn)
        if not is_host and groups and not groups[-1][0]:
            groups[-1][1].append(eqn)
        else:
            groups.append((is_host, [eqn]))
    return groups


def _group_by_level(jaxpr: Any) -> list[tuple[bool, list[Any]]]:
    computed: dict[int, list[Any]] = {}
    hosts: dict[int, list[list[Any]]] = {}
    for eqn, number in zip(jaxpr.eqns, _level_of_each(jaxpr), strict=True):
        if not _needs_host(eqn):
            computed.setdefault(number, []).append(eqn)
            continue
        bundles = hosts.setdefault(number, [])
        bundle = next((one for one in bundles if _can_share_exchange(one[0], eqn)), None)
        if bundle is None:
            bundles.append([eqn])
        else:
            bundle.append(eqn)
    groups: list[tuple[bool, list[Any]]] = []
    for number in sorted(computed.keys() | hosts.keys()):
        if number in computed:
            groups.append((False, computed[number]))
        groups.extend((True, bundle) for bundle in hosts.get(number, []))
    return groups


def _level_of_each(jaxpr: Any) -> list[int]:
    """The level of each equation: how many host equations, one after the other, it waits for."""
    known: dict[Any, int] = {}
    levels = []
    for eqn in jaxpr.eqns:
        number = max((known.get(atom, 0) for atom in _variables(eqn.invars)), default=0)
        levels.append(number)
        known.update(dict.fromkeys(eqn.outvars, number + _needs_host(eqn)))
    return levels


def _can_share_exchange(one: Any, other: Any) -> bool:
    return one.primitive is other.primitive and one.primitive.name in SUMS and one.params == other.params


def _has_refs(jaxpr: Any) -> bool:
    return any(hasattr(var.aval, "inner_aval") for eqn in jaxpr.eqns for var in (*_variables(eqn.invars), *eqn.outvars))


def _needs_host(eqn: Any) -> bool:
    if eqn.primitive.name in _HOST_PRIMITIVES:
        return True
    return any(jaxprs.contains(inner, COLLECTIVES) for inner in jaxprs.subjaxprs(eqn))


def _variables(atoms: Sequence[Any]) -> Iterable[Any]:
    return (atom for atom in atoms if not jaxprs.is_literal(atom))
