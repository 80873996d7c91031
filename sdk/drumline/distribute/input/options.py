"""Choices of how a distributed dataset is replicated and brought to the devices."""

from __future__ import annotations

from enum import Enum
from typing import Any

from drumline.distribute.errors import InvalidTypeError, InvalidValueError, UnsupportedError
from drumline.distribute.input.autoshard import AutoShardPolicy

LAST_BATCH = ("auto", "exact", "pad", "drop")


class InputReplicationMode(Enum):
    """How often a dataset function is called."""

    PER_WORKER = "PER_WORKER"
    PER_REPLICA = "PER_REPLICA"


class InputOptions:
    """How batches reach the devices; each name also exists with the prefix ``experimental_``.

    ``fetch_to_device``: batches lie on the replicas' devices before the step asks (False: they stay numpy arrays).
    ``replication_mode``: PER_REPLICA calls the dataset function once per replica; only for datasets from functions.
    ``place_dataset_on_device``: each replica's batch goes to its device when asked for, nothing is kept ready; needs
    PER_REPLICA and ``fetch_to_device=False``.
    ``per_replica_buffer_size``: batches kept ready in advance per replica; 0 reads when asked, in the caller's thread.
    ``last_batch``: what becomes of a batch with too few rows, or with rows that do not divide: "exact" gives each
    replica its true rows, "pad" fills up to the usual shape and has ``dist.row_weights()`` tell the rows that count,
    "drop" leaves the last one out. "auto" is exact; over several processes, and with several devices
    a replica, where replicas of different rows can't run, batches that do not divide evenly are filled up.
    """

    __slots__ = (
        "fetch_to_device",
        "last_batch",
        "per_replica_buffer_size",
        "place_dataset_on_device",
        "replication_mode",
    )

    def __init__(
        self,
        fetch_to_device: bool | None = None,
        replication_mode: InputReplicationMode | str = InputReplicationMode.PER_WORKER,
        place_dataset_on_device: bool = False,
        per_replica_buffer_size: int = 1,
        last_batch: str = "auto",
        **experimental: Any,
    ) -> None:
        chosen: dict[str, Any] = {
            "fetch_to_device": fetch_to_device,
            "replication_mode": replication_mode,
            "place_dataset_on_device": place_dataset_on_device,
            "per_replica_buffer_size": per_replica_buffer_size,
            "last_batch": last_batch,
        }
        for name, value in experimental.items():
            plain = name.removeprefix("experimental_")
            if plain == name or plain not in chosen:
                raise InvalidTypeError(f"InputOptions has no option {name!r}; it has {', '.join(chosen)}")
            chosen[plain] = value
        self.fetch_to_device = chosen["fetch_to_device"] is not False
        self.replication_mode = _replication_mode(chosen["replication_mode"])
        self.place_dataset_on_device = bool(chosen["place_dataset_on_device"])
        self.per_replica_buffer_size = int(chosen["per_replica_buffer_size"])
        self.last_batch = chosen["last_batch"]
        self._check()

    @property
    def places(self) -> bool:
        """Whether batches end up on devices at all."""
        return self.fetch_to_device or self.place_dataset_on_device

    @property
    def depth(self) -> int:
        """Batches kept ready in advance."""
        return self.per_replica_buffer_size if self.fetch_to_device else 0

    def _check(self) -> None:
        if self.per_replica_buffer_size < 0:
            raise InvalidValueError(
                f"per_replica_buffer_size {self.per_replica_buffer_size} is negative; use 0 or more"
            )
        if self.last_batch not in LAST_BATCH:
            raise InvalidValueError(f"last_batch={self.last_batch!r:.80} is unknown; use {', '.join(LAST_BATCH)}")
        if self.last_batch == "pad" and not self.fetch_to_device:
            raise InvalidValueError("last_batch='pad' needs fetch_to_device=True: padded batches lie on the devices")
        if not self.place_dataset_on_device:
            return
        if self.replication_mode is not InputReplicationMode.PER_REPLICA:
            raise InvalidValueError("place_dataset_on_device=True needs replication_mode=PER_REPLICA")
        if self.fetch_to_device:
            raise InvalidValueError("place_dataset_on_device=True needs fetch_to_device=False: they exclude each other")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("experimental_") and name.removeprefix("experimental_") in self.__slots__:
            return getattr(self, name.removeprefix("experimental_"))
        raise AttributeError(f"InputOptions has no option {name!r}; it has {', '.join(self.__slots__)}")

    def __repr__(self) -> str:
        return f"InputOptions({', '.join(f'{name}={getattr(self, name)!r}' for name in sorted(self.__slots__))})"


class Options:
    """Choices about a whole dataset, for ``Dataset.with_options``; None leaves a choice as it is.

    ``auto_shard_policy``: how workers divide the dataset (also as ``experimental_distribute.auto_shard_policy``).
    ``deterministic``: whether parallel ``map`` and ``interleave`` keep the order where they don't say it themselves.
    """

    __slots__ = ("auto_shard_policy", "deterministic")

    auto_shard_policy: AutoShardPolicy | None
    deterministic: bool | None

    def __init__(
        self, auto_shard_policy: AutoShardPolicy | str | None = None, deterministic: bool | None = None
    ) -> None:
        self.auto_shard_policy = auto_shard_policy  # type: ignore[assignment]  # __setattr__ takes its name too
        self.deterministic = deterministic

    @property
    def experimental_distribute(self) -> Options:
        """Itself: TensorFlow keeps the auto-shard policy one level deeper."""
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        name = name.removeprefix("experimental_")
        if name not in self.__slots__:
            raise AttributeError(f"Options has no option {name!r}; it has {', '.join(self.__slots__)}")
        if name == "auto_shard_policy" and value is not None:
            value = AutoShardPolicy.of(value)
        elif value is not None and not isinstance(value, bool):
            raise InvalidTypeError(f"option {name} is True, False or None, not {value!r:.60}")
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name == "experimental_deterministic":
            return self.deterministic
        raise AttributeError(f"Options has no option {name!r}; it has {', '.join(self.__slots__)}")

    def __repr__(self) -> str:
        return f"Options(auto_shard_policy={self.auto_shard_policy!r}, deterministic={self.deterministic!r})"


def require_per_worker(options: InputOptions) -> None:
    """NotImplementedError where a whole dataset is distributed in PER_REPLICA mode: nothing could be divided."""
    if options.replication_mode is InputReplicationMode.PER_REPLICA:
        raise UnsupportedError(
            "distribute_dataset divides one dataset, so replication_mode=PER_REPLICA means nothing here; "
            "use distribute_datasets_from_function"
        )


def _replication_mode(value: InputReplicationMode | str) -> InputReplicationMode:
    if isinstance(value, InputReplicationMode):
        return value
    if isinstance(value, str) and value.upper() in InputReplicationMode.__members__:
        return InputReplicationMode[value.upper()]
    raise InvalidValueError(f"unknown replication mode {value!r}; use {' or '.join(InputReplicationMode.__members__)}")
