"""How collectives travel: the options TensorFlow's strategies take, and the packing of many small tensors into few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from drumline.distribute.base.enums import NamedEnum
from drumline.distribute.errors import InvalidValueError


class CommunicationImplementation(NamedEnum):
    """Who carries a collective out. XLA chooses on its own; RING and NCCL are accepted and mean AUTO."""

    AUTO = "AUTO"
    RING = "RING"
    NCCL = "NCCL"


@dataclass(frozen=True)
class CommunicationOptions:
    """``bytes_per_pack``: a batched reduction packs tensors into pieces of about this size; 0 packs all into one.

    ``timeout_seconds`` is accepted and not needed: replicas that don't meet raise an error instead of hanging.
    """

    bytes_per_pack: int = 0
    timeout_seconds: float | None = None
    implementation: CommunicationImplementation | str = CommunicationImplementation.AUTO

    def __post_init__(self) -> None:
        if self.bytes_per_pack < 0:
            raise InvalidValueError(f"bytes_per_pack={self.bytes_per_pack} must not be negative; 0 packs all into one")
        object.__setattr__(self, "implementation", CommunicationImplementation.parse(self.implementation))

    def merge(self, options: CommunicationOptions | None) -> CommunicationOptions:
        """These options, with whatever ``options`` sets to something else than the default."""
        if options is None:
            return self
        default = CommunicationOptions()
        chosen = {
            field.name: getattr(options, field.name)
            if getattr(options, field.name) != getattr(default, field.name)
            else getattr(self, field.name)
            for field in fields(self)
        }
        return CommunicationOptions(**chosen)


def packs_by_bytes(sizes: Sequence[int], bytes_per_pack: int) -> list[list[int]]:
    """Indices of tensors of ``sizes`` bytes, grouped last tensor first (gradients of late layers are ready first).

    A new pack begins once the current one holds more than ``bytes_per_pack`` bytes; 0 makes one pack.
    """
    packs: list[list[int]] = []
    held = 0
    for index in reversed(range(len(sizes))):
        if not packs or (bytes_per_pack and held > bytes_per_pack):
            packs.append([])
            held = 0
        packs[-1].append(index)
        held += sizes[index]
    return packs
