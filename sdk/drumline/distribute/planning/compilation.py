"""Asks the compiler of a chip: what memory a program takes on each device, what is exchanged, at what cost."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from drumline.distribute.errors import NotPlannableError
from drumline.distribute.observe import Allocation, Compilation, ProgramMemory
from drumline.distribute.planning.chips import usable_of_gpu
from drumline.distribute.planning.compiled_text import find_collectives
from drumline.distribute.tracing import jaxprs

_OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"
_CALLBACKS = ("callback", "debug_print", "outside_call", "infeed", "outfeed")
_AVAILABLE = re.compile(r"available HBM \(([\d.]+)([KMGT]?)\)|of ([\d.]+)([KMGT]?) hbm", re.IGNORECASE)
_NEEDED = re.compile(r"Used ([\d.]+)([KMGT]?) of|\(([\d.]+)([KMGT]?)\) exceeds available HBM", re.IGNORECASE)
_LARGEST = re.compile(r"Size: ([\d.]+)([KMGT]?).*?Operator: (.*?)\n.*?Shape: (\w+)\[([\d,]*)\]", re.DOTALL)
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_MOST_CHARACTERS = 2_000
#: A program larger than any device's memory, by which the compiler tells how much there is.
_TOO_MANY_WORDS = 2**38
#: Kinds of devices whose programs this jaxlib could not read: the next one is compiled once.
_unreadable: set[str] = set()
COST_FIELDS = ("flops", "bytes accessed", "optimal_seconds")


def compile_for(device: Any, call: Any, inputs: Any, largest: Sequence[Allocation]) -> Compilation:
    """What the compiler of ``device`` says of ``call``, a jitted function, for ``inputs``, its arguments' shapes.

    ``largest``: of these the largest. Arguments that alone are more than a device has are not compiled. Raises
    NotPlannableError where the compiler refuses the program for another reason than its memory.
    """
    began = time.monotonic()
    available = available_bytes(device)
    arguments = sum(_device_bytes(leaf) for leaf in jax.tree.leaves(inputs) if hasattr(leaf, "sharding"))
    if available is not None and arguments > available:
        message = "The arguments alone are more than a device has, so that nothing was compiled."
        seconds = time.monotonic() - began
        return Compilation(False, arguments, arguments, available, True, tuple(largest), (), {}, message, seconds)
    try:
        compiled, text = _compile(call.lower(*inputs), device.device_kind)
    except jax.errors.JaxRuntimeError as error:
        if _OUT_OF_MEMORY not in str(error):
            raise NotPlannableError(f"the compiler of {device.device_kind} refuses the step: {error}") from error
        return _too_large(str(error), arguments, available, largest, time.monotonic() - began)
    memory = memory_of(compiled)
    return Compilation(
        fits=available is None or memory.peak <= available,
        argument_bytes=memory.argument,
        needed=memory.peak,
        available=available,
        is_gross=False,
        largest=tuple(largest),
        collectives=tuple(find_collectives(text)),
        cost=_cost_of(compiled),
        message="" if text else "neither jaxlib nor this version of the compiler tells the compiled program's text",
        seconds=time.monotonic() - began,
        memory=memory,
    )


def _compile(lowered: Any, kind: str) -> tuple[Any, str]:
    """A compiled program and its text; "" where nobody tells it.

    A compiler that is newer than jaxlib may write what jaxlib can't read: then it prints the text itself, into a file.
    """
    if kind not in _unreadable:
        compiled = lowered.compile()
        try:
            return compiled, str(compiled.as_text())
        except jax.errors.JaxRuntimeError:
            _unreadable.add(kind)
    with tempfile.TemporaryDirectory() as folder:
        compiled = lowered.compile(compiler_options={"xla_dump_to": folder, "xla_dump_hlo_as_text": True})
        written = sorted(Path(folder).glob("*after_optimizations.txt"))
        return compiled, written[-1].read_text() if written else ""


def memory_of(compiled: Any) -> ProgramMemory:
    """What a compiled program needs on each device."""
    return ProgramMemory.of(compiled.memory_analysis())


@lru_cache(maxsize=16)
def available_bytes(device: Any) -> int | None:
    """How much of a device's memory a program may use: its compiler tells, of a program that no device could hold.

    None for compilers that know no limit, such as those of CPUs.
    """
    if (usable := usable_of_gpu(device.device_kind)) is not None:
        return usable
    sharding = NamedSharding(Mesh(np.array([device]), ("one",), axis_types=(AxisType.Auto,)), PartitionSpec())
    words = jax.ShapeDtypeStruct((_TOO_MANY_WORDS,), np.float32, sharding=sharding)
    try:
        jax.jit(lambda x: x + 1).lower(words).compile()
    except jax.errors.JaxRuntimeError as error:
        if (found := _AVAILABLE.search(str(error))) is not None:
            return _size(found)
        raise NotPlannableError(f"the compiler of {device.device_kind} does not tell its memory: {error}") from error
    return None


def refuse_callbacks(jaxpr: Any) -> None:
    """NotPlannableError for a step that calls Python while it runs: no host is there to be called."""
    for eqn in jaxpr.eqns:
        if any(word in eqn.primitive.name for word in _CALLBACKS):
            raise NotPlannableError(
                f"the step calls the host while it runs ({eqn.primitive.name}), which can't be compiled for devices "
                "that are not there: leave out jax.debug.print and callbacks"
            )
        for inner in jaxprs.subjaxprs(eqn):
            refuse_callbacks(inner)


def _too_large(
    text: str, arguments: int, available: int | None, largest: Sequence[Allocation], seconds: float
) -> Compilation:
    needed = _NEEDED.search(text)
    allocations = tuple(_allocations(text)) or tuple(largest)
    return Compilation(
        fits=False,
        argument_bytes=arguments,
        needed=None if needed is None else _size(needed),
        available=available,
        is_gross=False,
        largest=allocations,
        collectives=(),
        cost={},
        message=text[:_MOST_CHARACTERS],
        seconds=seconds,
    )


def _allocations(text: str) -> Iterator[Allocation]:
    for size, unit, name, dtype, shape in _LARGEST.findall(text):
        extents = tuple(int(extent) for extent in shape.split(",") if extent)
        yield Allocation(name.strip()[:200], extents, dtype, int(float(size) * _UNITS[unit.upper()]))


def _size(found: re.Match[str]) -> int:
    number, unit = [group for group in found.groups() if group is not None][:2]
    return int(float(number) * _UNITS[unit.upper()])


def _cost_of(compiled: Any) -> dict[str, float]:
    """By the compiler's own model; a negative time is no answer."""
    found = compiled.cost_analysis() or {}
    found = found[0] if isinstance(found, list) else found
    return {name: float(found[name]) for name in COST_FIELDS if found.get(name, -1.0) >= 0}


def _device_bytes(leaf: Any) -> int:
    return int(np.prod(leaf.sharding.shard_shape(leaf.shape), dtype=np.int64)) * int(leaf.dtype.itemsize)
