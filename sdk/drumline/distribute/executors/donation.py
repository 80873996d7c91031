"""Arguments that a program takes for good: which leaves they are, what it takes, and what reading them later says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NoReturn

import jax

from drumline.distribute.errors import DonatedError, InvalidValueError
from drumline.distribute.tracing.arguments import StepArguments
from drumline.distribute.tracing.known_trees import picker
from drumline.distribute.tracing.leaf_names import parameter_names
from drumline.distribute.values.device_group import DeviceGroup
from drumline.distribute.values.per_replica import PerReplica


class GivenArgument:
    """The leaves of one argument that a program was compiled to take."""

    def __init__(self, name: str, leaves: Sequence[int]) -> None:
        self.name = name
        self._leaves = leaves
        self._pick = picker(leaves)
        self._are_arrays: bool | None = None
        self._unused: list[int] | None = None

    def take(self, arguments: StepArguments) -> Sequence[jax.Array]:
        """Its arrays, after the program ran. Those that XLA had no use for are deleted too."""
        if arguments.others is not None and self._are_arrays is None:
            self._are_arrays = set(self._leaves).isdisjoint(arguments.others)
        picked = self._pick(arguments.leaves)
        if arguments.others is None or not self._are_arrays:
            stacked = [leaf.stacked if isinstance(leaf, PerReplica) else leaf for leaf in picked]
            arrays = [leaf for leaf in stacked if isinstance(leaf, jax.Array)]  # of host arrays it had a copy
            for array in arrays:
                if not array.is_deleted():
                    array.delete()
            return arrays
        if self._unused is None:  # the same in each call of the program
            self._unused = [i for i, array in enumerate(picked) if not array.is_deleted()]
        for i in self._unused:
            picked[i].delete()
        return picked


def are_shared(given: list[Any], others: Sequence[list[Any]]) -> bool:
    """Whether an array of ``given`` is there twice, or among ``others`` too."""
    ids = set(map(id, given))
    return len(ids) < len(given) or not all(ids.isdisjoint(map(id, group)) for group in others)


def find_token(group: DeviceGroup, are_mirrored: Sequence[bool], *, gives_stacked: bool) -> tuple[bool, int]:
    """Whether a program needs one more output for the in-flight window to wait for, and which output that is.

    It must be one that no later step is given for good: not mirrored, as state is, and no stacked one in a program that
    ``gives_stacked`` arrays.
    """
    kept = [i for i, is_mirrored in enumerate(are_mirrored) if not is_mirrored]
    if group.window.limit is None:
        kept = [*range(len(are_mirrored))]
    elif gives_stacked:
        kept = []
    return not kept, kept[-1] if kept else -1


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
