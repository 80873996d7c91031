"""Whether copies that are to be equal still are, of variables and arguments: a checksum of each, made where it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from drumline.distribute.values.device_group import DeviceGroup
from drumline.distribute.values.per_replica import REPLICA_AXIS
from drumline.distribute.variables.owner import VariableOwner

CopyKind = Literal["variable", "argument"]


@dataclass(frozen=True, slots=True)
class OddCopy:
    """A copy that is not what most copies are. ``replica`` counts over all hosts.

    ``name``: of the variable, or the path of the argument's leaf, such as ``state.weights.0``.
    """

    name: str
    replica: int
    device: jax.Device


class CopyChecksums:
    """Checksums that the devices of this process compute; ``odd_copies`` waits for them.

    ``kind``: what ``names`` name.
    """

    def __init__(self, kind: CopyKind, names: Sequence[str], devices: Sequence[jax.Device], sums: jax.Array) -> None:
        self.kind = kind
        self._names = tuple(names)
        self._replicas = {device: replica for replica, device in enumerate(devices)}
        self._sums = sums

    def read(self) -> dict[int, tuple[int, ...]]:
        """By replica of this process the checksums of all names, in their order."""
        shards = [(self._replicas[shard.device], shard.data) for shard in self._sums.addressable_shards]
        return {replica: tuple(np.asarray(data).ravel().tolist()) for replica, data in sorted(shards)}

    def odd_copies(self) -> list[OddCopy]:
        """The copies that differ from most of this process, by name; where as many differ, from the first."""
        return self.find_odd(self.read())

    def find_odd(self, sums: dict[int, tuple[int, ...]]) -> list[OddCopy]:
        """As ``odd_copies``, of checksums that were read: also those that other processes have told."""
        devices = {replica: device for device, replica in self._replicas.items()}
        odd = []
        for at, name in enumerate(self._names):
            usual = Counter(own[at] for own in sums.values()).most_common(1)[0][0]
            odd += [OddCopy(name, replica, devices[replica]) for replica in sums if sums[replica][at] != usual]
        return odd


def checksum_copies(strategy: VariableOwner) -> CopyChecksums | None:
    """Begins to compute a checksum of each copy of each mirrored variable of ``strategy``, and does not wait for it.

    One program on all devices, without a collective: 4 bytes a variable and replica come to the host. A change of any
    one element changes the checksum. None where there is nothing to compare: one replica, no mirrored variables, or
    replicas of several devices.
    """
    if strategy.num_replicas_in_sync == 1 or strategy.logical_axes:
        return None
    mirrored = [variable for variable in strategy.own_variables() if _has_equal_copies(variable)]
    if not mirrored:
        return None
    stacked = tuple(variable.storage == "stacked" for variable in mirrored)
    sums = _checksum_everywhere([variable._buffer for variable in mirrored], mesh=strategy.mesh, stacked=stacked)
    return CopyChecksums("variable", [variable.name for variable in mirrored], strategy.devices, sums)


def checksum_arguments(group: DeviceGroup, names: Sequence[str], arrays: Sequence[jax.Array]) -> CopyChecksums:
    """As ``checksum_copies``, of arrays that a step is given, whole on every device of ``group``; at least one.

    A program that is sent after this may take the arrays for good.
    """
    sums = _checksum_everywhere([*arrays], mesh=group.mesh, stacked=(False,) * len(arrays))
    return CopyChecksums("argument", names, group.devices, sums)


def _has_equal_copies(variable: Any) -> bool:
    """Whether all copies must be equal: not of one that each replica writes, nor after a step made them differ."""
    if not variable.is_initialized or variable.is_lost:
        return False
    return bool(variable.storage == "replicated" or (variable.storage == "stacked" and variable.is_uniform))


@partial(jax.jit, static_argnames=("mesh", "stacked"))
def _checksum_everywhere(buffers: list[jax.Array], *, mesh: Mesh, stacked: tuple[bool, ...]) -> jax.Array:
    def own(buffers: list[jax.Array]) -> jax.Array:
        return jnp.stack([_checksum(buffer) for buffer in buffers])[None]

    # P() and no check: each device looks at the copy that it has, whatever the others have.
    specs = ([P(REPLICA_AXIS) if is_stacked else P() for is_stacked in stacked],)
    return jax.shard_map(own, mesh=mesh, in_specs=specs, out_specs=P(REPLICA_AXIS), check_vma=False)(buffers)


def _checksum(array: jax.Array) -> jax.Array:
    """Odd weights: no change of one word leaves the sum, modulo 2**32, as it was."""
    words = _words(array).ravel()
    weights = 2 * lax.iota(jnp.uint32, words.size) + 1
    return jnp.sum(words * weights, dtype=jnp.uint32)


def _words(array: jax.Array) -> Any:
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return jax.random.key_data(array)
    if jnp.iscomplexobj(array):
        return jnp.concatenate([_words(array.real.ravel()), _words(array.imag.ravel())])
    if array.dtype == jnp.bool_:
        return array.astype(jnp.uint32)
    bits = jax.dtypes.itemsize_bits(array.dtype)
    if bits < 8:
        return array.astype(jnp.int32).astype(jnp.uint32)
    unsigned = {8: jnp.uint8, 16: jnp.uint16}.get(bits, jnp.uint32)  # of 64 bits two words
    return lax.bitcast_convert_type(array, unsigned).astype(jnp.uint32)
