"""Arguments that a step is given for good: which leaves they are, and what reading them later says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NoReturn

from drumline.distribute.errors import DonatedError, InvalidValueError
from drumline.distribute.tracing.leaf_names import parameter_names


def donated_leaves(fn: Callable[..., Any], tree: Any, names: Iterable[str]) -> dict[str, range]:
    """The positions of the leaves of each named argument. ``tree``: of (args, kwargs).

    InvalidValueError for a name that is no parameter of ``fn``, or was not passed.
    """
    args, kwargs = tree.children()
    keys = kwargs.node_data()[1]
    by_place = args.children()
    counts = [child.num_leaves for child in (*by_place, *kwargs.children())]
    starts = [sum(counts[:i]) for i in range(len(counts))]
    names_by_place = (*parameter_names(fn), *([""] * len(by_place)))[: len(by_place)]
    passed = [*names_by_place, *keys]
    found: dict[str, range] = {}
    for name in names:
        if name not in passed:
            raise InvalidValueError(
                f"donate={name!r} is no argument that {getattr(fn, '__name__', fn)} was passed; it was passed "
                f"{', '.join(repr(each) for each in passed if each) or 'none'}"
            )
        at = passed.index(name)
        found[name] = range(starts[at], starts[at] + counts[at])
    return found


def refuse_reads(arrays: Iterable[Any], argument: str, step: int) -> None:
    """Reading ``arrays``, which were donated, raises DonatedError from now on."""
    refuse = partial(_refuse, argument, step)
    for array in arrays:
        # Donation leaves the array its buffers, which a compiled `jax.jit` hands on without asking: over several
        # devices that ends the process (JAX 0.10.2). An array without buffers takes the way on which JAX asks.
        array.delete()
        # JAX asks this of an array before it reads it; its own answer can't say what took the array.
        array._check_if_deleted = refuse


def _refuse(argument: str, step: int) -> NoReturn:
    raise DonatedError(
        f"argument {argument!r} was donated to step {step} and can't be read any more: use what that step returned, or "
        f"leave {argument!r} out of RunOptions(donate=...)"
    )
