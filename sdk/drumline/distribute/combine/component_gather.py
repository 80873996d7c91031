"""Brings every replica's array to every replica where their shapes differ (lock-step executor only).

``gather_components`` gives one array per replica, each in its own shape. It is linear; its transpose adds up, over the
replicas, the gradients that belong to this replica's array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad

gather_components_p = Primitive("replica_gather_components")
gather_components_p.multiple_results = True
return_gradients_p = Primitive("replica_return_gradients")
return_gradients_p.multiple_results = True

Shapes = tuple[tuple[int, ...], ...]


def gather_components(value: Any, shapes: Sequence[tuple[int, ...]], replica: int) -> list[Any]:
    """Every replica's array; ``shapes`` are all replicas' shapes, ``replica`` is whose program this is."""
    return list(gather_components_p.bind(value, shapes=tuple(shapes), replica=replica))


def _gather_abstract(value: ShapedArray, *, shapes: Shapes, replica: int) -> list[ShapedArray]:
    return [ShapedArray(shape, value.dtype) for shape in shapes]


def _return_abstract(*gradients: ShapedArray, shapes: Shapes, replica: int) -> list[ShapedArray]:
    return [ShapedArray(shapes[replica], gradients[0].dtype)]


def _gather_transpose(cotangents: Sequence[Any], value: Any, *, shapes: Shapes, replica: int) -> list[Any]:
    gradients = [ad.instantiate_zeros(cotangent) for cotangent in cotangents]
    return list(return_gradients_p.bind(*gradients, shapes=shapes, replica=replica))


def _return_transpose(cotangents: Sequence[Any], *gradients: Any, shapes: Shapes, replica: int) -> list[Any]:
    (cotangent,) = cotangents
    return gather_components(ad.instantiate_zeros(cotangent), shapes, replica)


gather_components_p.def_abstract_eval(_gather_abstract)
return_gradients_p.def_abstract_eval(_return_abstract)
ad.deflinear2(gather_components_p, _gather_transpose)
ad.deflinear2(return_gradients_p, _return_transpose)


def exchange_components(operands: list[list[Any]], devices: Sequence[jax.Device]) -> list[list[Any]]:
    """Every array on every device."""
    arrays = [row[0] for row in operands]
    return [list(jax.device_put(arrays, device)) for device in devices]


def sum_gradients(operands: list[list[Any]], devices: Sequence[jax.Device]) -> list[list[Any]]:
    """For each replica the sum of what all replicas have for it."""
    results = []
    for replica, device in enumerate(devices):
        parts = jax.device_put([row[replica] for row in operands], device)
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        results.append([total])
    return results
