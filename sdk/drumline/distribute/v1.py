"""The TF1-style strategies: explicit input iterators, ``reduce`` with a default axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from drumline.distribute.base.enums import ReduceOp
from drumline.distribute.errors import InvalidTypeError
from drumline.distribute.strategies import central_storage, mirrored, one_device
from drumline.distribute.strategies.experimental_names import NumpyDatasets
from drumline.distribute.strategies.strategy import Strategy

if TYPE_CHECKING:
    from drumline.distribute.input.v1 import InputIterator


class StrategyV1(NumpyDatasets, Strategy):
    """What the TF1-style strategies add."""

    #: Is the batch of a dataset given to ``make_dataset_iterator`` one replica's (contrib), or the global one?
    batch_is_per_replica: ClassVar[bool] = False
    _shards_files = False

    def make_dataset_iterator(self, dataset: Any) -> InputIterator:
        """An iterator that gives every replica its part of each batch; call ``get_next`` per step.

        Here the dataset's batch is the global one; the contrib strategy's is per replica.
        """
        from drumline.distribute.input import v1

        return v1.make_dataset_iterator(
            self, dataset, batch_is_per_replica=self.batch_is_per_replica, shards_files=self._shards_files
        )

    def make_input_fn_iterator(
        self, input_fn: Callable[[Any], Any], replication_mode: Any = "PER_WORKER"
    ) -> InputIterator:
        """An iterator over what ``input_fn(InputContext)`` returns: a dataset, or a function that makes a batch.

        Every replica takes a whole batch. InvalidValueError for anything else and for PER_REPLICA mode.
        """
        from drumline.distribute.input import v1

        return v1.make_input_fn_iterator(self, input_fn, replication_mode)

    def experimental_run(self, fn: Callable[..., Any], input_iterator: InputIterator | None = None) -> Any:
        """Runs ``fn`` on the next step of ``input_iterator``, or without arguments.

        InvalidTypeError for anything that is no iterator of ``make_dataset_iterator`` or ``make_input_fn_iterator``.
        """
        if input_iterator is not None and not hasattr(input_iterator, "get_next"):
            raise InvalidTypeError(
                f"experimental_run was given {input_iterator!r:.60} for an iterator; pass what "
                "make_dataset_iterator or make_input_fn_iterator returns, or use run(fn, args=(batch,))"
            )
        return self.run(fn, () if input_iterator is None else (input_iterator.get_next(),))

    def reduce(self, reduce_op: ReduceOp | str, value: Any, axis: Any = None, *, name: str | None = None) -> Any:
        return super().reduce(reduce_op, value, axis, name=name)


class MirroredStrategy(StrategyV1, mirrored.MirroredStrategy):
    """MirroredStrategy, TF1 style."""


class CentralStorageStrategy(StrategyV1, central_storage.CentralStorageStrategy):
    """CentralStorageStrategy, TF1 style."""


class OneDeviceStrategy(StrategyV1, one_device.OneDeviceStrategy):
    """OneDeviceStrategy, TF1 style."""


__all__ = ["CentralStorageStrategy", "MirroredStrategy", "OneDeviceStrategy", "StrategyV1"]
