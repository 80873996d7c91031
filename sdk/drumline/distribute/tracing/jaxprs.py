"""The only module that touches jaxpr types.

JAX 0.10 hands out ClosedJaxpr and counts a scan's operands; 0.12 has a Jaxpr with its constants and trees of operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex

from drumline.distribute.errors import VariableScopeError

Eqn = Any  # jax.extend.core.JaxprEqn, untyped upstream
Closed = Any  # jax.extend.core.ClosedJaxpr


def as_function(closed: Closed) -> Callable[..., list[Any]]:
    """A traceable function of the jaxpr's inputs."""
    return jex.jaxpr_as_fun(closed)  # type: ignore[no-any-return, no-untyped-call, unused-ignore]  # untyped upstream


def hoist_constants(closed: Closed) -> tuple[Closed, list[Any]]:
    """The jaxpr with its constants as its first inputs, and their values."""
    jaxpr = closed.jaxpr
    invars = [*jaxpr.constvars, *jaxpr.invars]
    opened = jaxpr.replace(constvars=[], invars=invars, debug_info=_without_names(jaxpr.debug_info))
    return jex.ClosedJaxpr(opened, ()), list(closed.consts)


def drop_unused_inputs(closed: Closed, keep: Sequence[bool]) -> Closed:
    """Without the inputs marked False and the refs that were only made from them."""
    jaxpr = closed.jaxpr
    dropped = {var for var, kept in zip(jaxpr.invars, keep, strict=True) if not kept}
    eqns = [eqn for eqn in jaxpr.eqns if not any(_is_in(var, dropped) for var in eqn.invars)]
    invars = [var for var in jaxpr.invars if var not in dropped]
    debug = _without_names(jaxpr.debug_info)
    return closed.replace(jaxpr=jaxpr.replace(invars=invars, eqns=eqns, debug_info=debug))


def is_literal(atom: Any) -> bool:
    """Tells a constant written into the equation from a variable."""
    return isinstance(atom, jex.Literal)


def without_literals(jaxpr: Any, results: Sequence[Any]) -> list[Any]:
    """The results of an open jaxpr, with arrays in place of the numbers that were written into it as outputs."""
    return [
        np.asarray(result, atom.aval.dtype) if is_literal(atom) else result
        for atom, result in zip(jaxpr.outvars, results, strict=True)
    ]


def subjaxprs(eqn: Eqn) -> Iterable[Any]:
    """The jaxprs (open ones) inside an equation's parameters."""
    for value in eqn.params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(item, jex.ClosedJaxpr):
                yield item.jaxpr
            elif isinstance(item, jex.Jaxpr):
                yield item


def nested_constants(eqn: Eqn) -> Iterator[Any]:
    """The arrays that the jaxprs inside an equation hold, however deep. Their text doesn't show them."""
    for value in eqn.params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(item, (jex.ClosedJaxpr, jex.Jaxpr)):
                jaxpr, constants = open_with_consts(item)
                yield from constants
                for inner in jaxpr.eqns:
                    yield from nested_constants(inner)


def map_equations(jaxpr: Any, change: Callable[[Eqn], Eqn], closed_to: frozenset[str] = frozenset()) -> Any:
    """The open ``jaxpr`` with ``change`` applied to every equation, nested ones first.

    What lies inside of primitives with the names ``closed_to`` stays as it is.
    """
    return jaxpr.replace(
        eqns=[
            change(eqn if eqn.primitive.name in closed_to else _map_nested(eqn, change, closed_to))
            for eqn in jaxpr.eqns
        ]
    )


def replace_by(eqn: Eqn, function: Callable[..., Any]) -> Eqn:
    """The equation as a call of ``function``, which takes its operands and gives a list of its results.

    To be called where the axes that ``function`` names are bound.
    """
    examples = [jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype) for atom in eqn.invars]
    (call,) = jax.make_jaxpr(jax.jit(function))(*examples).jaxpr.eqns
    return eqn.replace(primitive=call.primitive, params=call.params, effects=call.effects)


def contains(jaxpr: Any, names: frozenset[str]) -> bool:
    """Tells whether a primitive with one of these names occurs, however deep."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in names or any(contains(inner, names) for inner in subjaxprs(eqn)):
            return True
    return False


def open_with_consts(closed_or_open: Any) -> tuple[Any, Sequence[Any]]:
    """The open jaxpr and its constants, whichever kind was given."""
    if isinstance(closed_or_open, jex.ClosedJaxpr):
        return closed_or_open.jaxpr, closed_or_open.consts
    return closed_or_open, ()


def bind(eqn: Eqn, operands: Sequence[Any], like: Any) -> list[Any]:
    """Applies one equation of the jaxpr ``like`` to operands (values or tracers); dropped results are None."""
    inputs = dict.fromkeys(atom for atom in eqn.invars if not is_literal(atom))
    outputs = [var for var in eqn.outvars if not isinstance(var, jex.DropVar)]
    given = {atom: value for atom, value in zip(eqn.invars, operands, strict=True) if not is_literal(atom)}
    results = iter(as_function(_close(like, [eqn], list(inputs), outputs))(*(given[atom] for atom in inputs)))
    return [None if isinstance(var, jex.DropVar) else next(results) for var in eqn.outvars]


def scan_counts(params: dict[str, Any]) -> tuple[int, int]:
    """How many of a scan's operands are constants, and how many are carried; the rest is scanned over."""
    if "num_carry" in params:
        return params["num_consts"], params["num_carry"]
    constants, carried, _ = params["ft_in"].unpack()
    return len(list(constants)), len(list(carried))


def refuse_writes_in_checkpoint(jaxpr: Any) -> None:
    """VariableScopeError for a variable written inside ``jax.checkpoint``, where the write would be done twice."""
    for eqn in jaxpr.eqns:
        for inner in subjaxprs(eqn):
            outer_refs = any(hasattr(var.aval, "inner_aval") for var in eqn.invars if not is_literal(var))
            is_checkpoint = eqn.primitive.name in ("checkpoint", "remat", "remat2")
            if is_checkpoint and outer_refs and contains(inner, frozenset({"swap", "addupdate"})):
                raise VariableScopeError(
                    f"a variable is written inside jax.checkpoint at {source_line(eqn)}; it runs twice there, "
                    "and so would the write: return the value and write it outside"
                )
            refuse_writes_in_checkpoint(inner)


def segment(eqns: Sequence[Eqn], inputs: Sequence[Any], outputs: Sequence[Any], like: Any) -> Callable[..., list[Any]]:
    """A function of ``inputs`` that evaluates ``eqns`` of the jaxpr ``like`` and returns ``outputs``, to be jitted."""
    return as_function(_close(like, eqns, inputs, outputs))


def source_line(eqn: Eqn) -> str:
    """The file:line of the user's code that made the equation, or "an unknown line"."""
    traceback = getattr(getattr(eqn, "source_info", None), "traceback", None)
    frames = traceback.frames if traceback is not None else ()
    for frame in frames:
        if "/jax/" not in frame.file_name and "/drumline/distribute/" not in frame.file_name:
            return f"{frame.file_name}:{frame.line_num}"
    return "an unknown line"


def _close(like: Any, eqns: Sequence[Eqn], inputs: Sequence[Any], outputs: Sequence[Any]) -> Closed:
    jaxpr = like.replace(
        constvars=[],
        invars=list(inputs),
        outvars=list(outputs),
        eqns=list(eqns),
        effects=jex.no_effects,
        debug_info=_without_names(like.debug_info),
    )
    return jex.ClosedJaxpr(jaxpr, ())


def _map_nested(eqn: Eqn, change: Callable[[Eqn], Eqn], closed_to: frozenset[str]) -> Eqn:
    if next(iter(subjaxprs(eqn)), None) is None:
        return eqn

    def map_value(value: Any) -> Any:
        if isinstance(value, jex.ClosedJaxpr):
            return value.replace(jaxpr=map_equations(value.jaxpr, change, closed_to))
        if isinstance(value, jex.Jaxpr):
            return map_equations(value, change, closed_to)
        if type(value) in (tuple, list):  # not the named tuples of scatter and gather, which hold no jaxprs
            return type(value)(map_value(item) for item in value)
        return value

    return eqn.replace(params={name: map_value(value) for name, value in eqn.params.items()})


def _without_names(debug_info: Any) -> Any:
    return debug_info._replace(arg_names=None, result_paths=None) if debug_info is not None else None


def _is_in(atom: Any, variables: set[Any]) -> bool:
    return not is_literal(atom) and atom in variables


def difference(old: Closed, new: Closed) -> str | None:
    """How ``new`` differs from ``old`` as a program, in words; None where it doesn't."""
    return _open_difference(*open_with_consts(old), *open_with_consts(new))


def _open_difference(old: Any, old_consts: Sequence[Any], new: Any, new_consts: Sequence[Any]) -> str | None:
    if len(old.eqns) != len(new.eqns) or len(old.invars) != len(new.invars):
        return (
            f"it has {len(new.eqns)} operations on {len(new.invars)} inputs, not {len(old.eqns)} on {len(old.invars)}"
        )
    if len(old_consts) != len(new_consts) or not all(map(_is_same, old_consts, new_consts)):
        return "it has other constants"
    names: dict[Any, Any] = dict(zip([*old.constvars, *old.invars], [*new.constvars, *new.invars], strict=True))
    for before, after in zip(old.eqns, new.eqns, strict=True):
        if before.primitive is not after.primitive or not _are_same_atoms(before.invars, after.invars, names):
            return f"it does {_describe(after)} at {source_line(after)} instead of {_describe(before)}"
        inner = _params_difference(before, after)
        if inner is not None:
            return inner
        names.update(zip(before.outvars, after.outvars, strict=True))
    if not _are_same_atoms(old.outvars, new.outvars, names):
        return "it returns other values"
    return None


def _params_difference(before: Eqn, after: Eqn) -> str | None:
    if before.params.keys() != after.params.keys():
        return f"{after.primitive.name} at {source_line(after)} has other parameters"
    for name, old in before.params.items():
        pairs = list(zip(_as_items(old), _as_items(after.params[name]), strict=False))
        if len(_as_items(old)) != len(_as_items(after.params[name])):
            return f"{after.primitive.name} at {source_line(after)} has another {name}"
        for mine, other in pairs:
            if isinstance(mine, (jex.ClosedJaxpr, jex.Jaxpr)):
                inner = difference(mine, other)
                if inner is not None:
                    return inner
            elif not callable(mine) and not _is_same(mine, other):
                return f"{after.primitive.name} at {source_line(after)} has another {name}"
    return None


def _as_items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (tuple, list)) else (value,)


def _are_same_atoms(old: Sequence[Any], new: Sequence[Any], names: dict[Any, Any]) -> bool:
    return len(old) == len(new) and all(_is_same_atom(mine, other, names) for mine, other in zip(old, new, strict=True))


def _is_same_atom(old: Any, new: Any, names: dict[Any, Any]) -> bool:
    if is_literal(old) or is_literal(new):
        return is_literal(old) and is_literal(new) and old.aval == new.aval and _is_same(old.val, new.val)
    return (
        old in names and names[old] is new and str(old.aval) == str(new.aval)
    )  # avals may hold refs, which compare by identity


def _is_same(old: Any, new: Any) -> bool:
    """Equal bits where there are numbers, equal values elsewhere."""
    if old is new:
        return True
    if isinstance(old, (int, float, complex, np.generic, np.ndarray, jax.Array)):
        if jnp.issubdtype(getattr(old, "dtype", np.float32), jax.dtypes.extended):
            return False
        before, after = np.asarray(old), np.asarray(new)
        return before.dtype == after.dtype and before.shape == after.shape and before.tobytes() == after.tobytes()
    compares = getattr(type(old), "__eq__", None) != object.__eq__
    return bool(old == new) if compares else type(old) is type(new)


def _describe(eqn: Eqn) -> str:
    literals = [str(atom.val) for atom in eqn.invars if is_literal(atom)]
    return f"{eqn.primitive.name}({', '.join(literals)})" if literals else str(eqn.primitive.name)
