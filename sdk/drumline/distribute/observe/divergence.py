"""Whether the copies of a variable that are to be equal still are: a checksum of each, made on its own device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from drumline.distribute.values.per_replica import REPLICA_AXIS
from drumline.distribute.variables.owner import VariableOwner


@dataclass(frozen=True, slots=True)
class OddCopy:
    """A copy of a variable that is not what most copies are. ``replica`` counts over all hosts."""

    variable: str
    replica: int
    device: jax.Device


class CopyChecksums:
    """Checksums that the devices of this process compute; ``odd_copies`` waits for them."""

    def __init__(self, names: Sequence[str], devices: Sequence[jax.Device], sums: jax.Array) -> None:
        self._names = tuple(names)
        self._replicas = {device: replica for replica, device in enumerate(devices)}
        self._sums = sums

    def read(self) -> dict[int, tuple[int, ...]]:
        """By replica of this process the checksums of all variables, in their order."""
        shards = [(self._replicas[shard.device], shard.data) for shard in self._sums.addressable_shards]
        return {replica: tuple(np.asarray(data).ravel().tolist()) for replica, data in sorted(shards)}

    def odd_copies(self) -> list[OddCopy]:
        """The copies that differ from most of this process, by variable; where as many differ, from the first."""
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
    return CopyChecksums([variable.name for variable in mirrored], strategy.devices, sums)


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
