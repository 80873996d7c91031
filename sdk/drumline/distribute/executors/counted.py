"""What a compiled step takes on each device: its floating point operations, as XLA counts them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import jax

from drumline.distribute.observe import StepCost
from drumline.distribute.tracing import jaxprs
from drumline.distribute.tracing.step import TracedStep

#: What nearly all arithmetic of a step is, and primitives whose arithmetic XLA does not see.
_PRODUCTS = frozenset({"dot_general", "conv_general_dilated", "ragged_dot", "ragged_dot_general"})
_KERNELS = ("pallas_call", "triton_kernel_call", "ffi_call", "dot_product_attention")


class CountedCost:
    """The cost of a step's program, without what is done to observe it; counted at a call that somebody observes.

    ``is_whole``: each replica is one device, so that the program as written is what one device does.
    """

    def __init__(self, traced: TracedStep, *, is_whole: bool) -> None:
        self._traced = traced
        self._is_whole = is_whole
        self._cost: StepCost | None = None

    @property
    def is_known(self) -> bool:
        """Whether there is nothing left to count."""
        return self._cost is not None

    def begin(self, call: Any, inputs: Sequence[Any]) -> Any:
        """Before the call, which takes its inputs: the program lowered, or None where nothing is to be counted."""
        if self._cost is None and not hasattr(call, "lower"):
            self._cost = StepCost(None, "compiler")
        if self._cost is None and (unknown := _uncountable(self._traced.jaxpr.jaxpr, in_loop=False)) is not None:
            self._cost = StepCost(None, unknown)
        return None if self._cost is not None else call.lower(*inputs)

    def end(self, lowered: Any) -> StepCost | None:
        """After the call, which compiled what was lowered: nothing is compiled for this. None until it is counted.

        A GPU's compiler makes products calls of libraries, of which XLA counts nothing: there what was written counts.
        """
        if lowered is not None:
            found = [lowered.compile().cost_analysis()]
            if self._is_whole and jax.default_backend() == "gpu":
                found.append(lowered.cost_analysis())
            self._cost = _most(found)
        return self._cost

    def count_written(self, call: Any, inputs: Sequence[Any]) -> None:
        """Where a variant of the program runs in its place: as it was written, since it is not compiled.

        XLA would count in the variant what it does only once a NaN was found.
        """
        if self._is_whole and (lowered := self.begin(call, inputs)) is not None:
            self._cost = _most([lowered.cost_analysis()])


def _most(found: Sequence[Any]) -> StepCost:
    flops = max(float((each or {}).get("flops", -1.0)) for each in found)
    return StepCost(flops) if flops >= 0 else StepCost(None, "compiler")


def _uncountable(jaxpr: Any, *, in_loop: bool) -> Literal["loops", "kernels"] | None:
    """Why XLA's count of a step's arithmetic is too small to be told."""
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if name.startswith(_KERNELS):
            return "kernels"
        if in_loop and name in _PRODUCTS:
            return "loops"
        loops = in_loop or name == "while" or (name == "scan" and eqn.params["length"] > 1)
        for inner in jaxprs.subjaxprs(eqn):
            if (found := _uncountable(inner, in_loop=loops)) is not None:
                return found
    return None
