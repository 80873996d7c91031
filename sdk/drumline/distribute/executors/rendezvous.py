"""The rendezvous of a lock-step step: all replicas ask for the same collective, which the host then runs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from drumline.distribute.combine.cross_device_ops import CrossDeviceOps
from drumline.distribute.combine.primitives import (
    exchange_components,
    gather_components_p,
    return_gradients_p,
    sum_gradients,
)
from drumline.distribute.errors import CollectiveError, CollectiveShapeError
from drumline.distribute.executors.host_collectives import run_collective
from drumline.distribute.observe import MAX_FREQUENT_ELEMENTS
from drumline.distribute.observe.non_finite import ExchangeWatch, Reduced, Watched
from drumline.distribute.observe.observation import Observation
from drumline.distribute.tracing import jaxprs
from drumline.distribute.tracing.instrumentation import SUMS, Division, is_instrumented, mean_of_sum
from drumline.distribute.tracing.reduction_names import all_reduce_name

#: Collectives over arrays of different shapes.
_RAGGED_COLLECTIVES = {gather_components_p: exchange_components, return_gradients_p: sum_gradients}


@dataclass(frozen=True, slots=True)
class Request:
    """A replica has come to a collective; ``eqns`` tells for each operand where it comes from."""

    eqns: tuple[Any, ...]
    operands: list[Any]

    @property
    def eqn(self) -> Any:
        return self.eqns[0]

    @property
    def name(self) -> str:
        return str(self.eqn.primitive.name)


class Rendezvous:
    """Does the collectives of one strategy's lock-step programs."""

    def __init__(
        self,
        devices: Sequence[jax.Device],
        ops: CrossDeviceOps,
        observation: Observation,
        names: Mapping[Any, str],
        means: Mapping[Any, Division],
    ) -> None:
        """``names`` and ``means``: of what all-reduces put out, the variables' names, and how some become means."""
        self._devices = devices
        self._ops = ops
        self._observation = observation
        self._names = names
        self._means = means
        self._watch = ExchangeWatch()

    def exchange(self, requests: list[Request]) -> list[list[Any]]:
        """Each replica's results, from one request per replica; CollectiveError where these are not the same."""
        first = requests[0]
        # Before anything is moved: replicas in different collectives would add unlike things up.
        for replica, request in enumerate(requests):
            if request.name != first.name or len(request.operands) != len(first.operands):
                raise CollectiveError(
                    f"replica 0 is in {first.name} at {jaxprs.source_line(first.eqn)} while replica {replica} is in "
                    f"{request.name} at {jaxprs.source_line(request.eqn)}; every replica must reach the same "
                    "collectives"
                )
        entered_at = time.monotonic_ns()
        if first.eqn.primitive in _RAGGED_COLLECTIVES:
            run_ragged = _RAGGED_COLLECTIVES[first.eqn.primitive]
            results = run_ragged([request.operands for request in requests], self._devices)
        else:
            results = self._exchange_alike(requests)
        self._observation.report_collective(first.name, entered_at)
        return results

    @property
    def _reads_sums(self) -> bool:
        """Of this step: to tell them, or to learn what it costs."""
        return self._observation.wants_in_step or self._observation.large.is_forced

    def _exchange_alike(self, requests: list[Request]) -> list[list[Any]]:
        first = requests[0]
        columns = [[request.operands[k] for request in requests] for k in range(len(first.operands))]
        for column, eqn in zip(columns, first.eqns, strict=True):
            _check_alike(column, eqn)
        results = run_collective(first.name, first.eqn.params, columns, self._ops, self._devices)
        observation = self._observation
        if first.name in SUMS and (self._reads_sums or observation.watcher is not None):
            reduced = [
                self._describe(first, at, column, result[0])
                for at, (column, result) in enumerate(zip(columns, results, strict=True))
                if is_instrumented(first.eqns[at])
            ]
            self._report(reduced)
            self._look(reduced)
        return [[column[r] for column in results] for r in range(len(requests))]

    def _describe(self, first: Request, at: int, operands: list[Any], result: Any) -> Reduced:
        eqn = first.eqns[at]
        out = eqn.outvars[sum(before is eqn for before in first.eqns[:at])]
        is_mean = eqn.params.get("op") == "MEAN" or out in self._means
        if out in self._means and self._reads_sums:  # which the program itself divides afterwards
            result = mean_of_sum(result, len(operands), self._means[out])
        name = self._names.get(out) or all_reduce_name(eqn)
        return Reduced(Watched(name, "mean" if is_mean else "sum", jnp.shape(result)), operands, result)

    def _report(self, reduced: Sequence[Reduced]) -> None:
        if not self._reads_sums:
            return
        reads_large = self._observation.wants_large or self._observation.large.is_forced
        for one in reduced:
            if jnp.size(one.result) > MAX_FREQUENT_ELEMENTS and not reads_large:
                continue
            self._observation.report_in_step(one.what.name, one.what.op, one.parts, one.result)

    def _look(self, reduced: Sequence[Reduced]) -> None:
        watcher = self._observation.watcher
        of_floats = [one for one in reduced if jnp.issubdtype(one.result.dtype, jnp.floating)]
        if watcher is not None and of_floats:
            watcher.watched(self._watch.look(self._observation.next_step.start, of_floats))


def _check_alike(operands: list[Any], eqn: Any) -> None:
    shapes = [(jnp.shape(value), jnp.result_type(value)) for value in operands]
    if any(shape != shapes[0] for shape in shapes):
        raise CollectiveShapeError(
            f"{eqn.primitive.name} at {jaxprs.source_line(eqn)} got a different shape or dtype per replica: "
            f"{', '.join(f'{dtype}{list(shape)}' for shape, dtype in shapes)}; reduce over the batch axis first, or "
            "use all_gather"
        )
