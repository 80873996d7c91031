"""The names that TensorFlow's pages give to methods with shorter names here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax


class _ShortNames(Protocol):
    """The methods that the longer names stand for."""

    def run(self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> Any: ...

    def local_results(self, value: Any) -> tuple[Any, ...]: ...

    def distribute_dataset(self, dataset: Any, options: Any = None) -> Any: ...

    def distribute_datasets_from_function(self, dataset_fn: Callable[[Any], Any], options: Any = None) -> Any: ...

    def distribute_values_from_function(self, value_fn: Callable[[Any], Any]) -> Any: ...


class ExperimentalNames:
    """Each calls the method without the prefix."""

    def experimental_run_v2(
        self: _ShortNames, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """As ``run``."""
        return self.run(fn, args, kwargs)

    def experimental_local_results(self: _ShortNames, value: Any) -> tuple[Any, ...]:
        """As ``local_results``."""
        return self.local_results(value)

    def unwrap(self: _ShortNames, value: Any) -> tuple[Any, ...]:
        """As ``local_results``; the name of older TensorFlow."""
        return self.local_results(value)

    def group(self: _ShortNames, value: Any, name: str | None = None) -> None:
        """Returns when all components of ``value`` in this process are computed. ``name`` is not used."""
        jax.block_until_ready(self.local_results(value))

    def experimental_distribute_dataset(self: _ShortNames, dataset: Any, options: Any = None) -> Any:
        """As ``distribute_dataset``."""
        return self.distribute_dataset(dataset, options)

    def experimental_distribute_datasets_from_function(
        self: _ShortNames, dataset_fn: Callable[[Any], Any], options: Any = None
    ) -> Any:
        """As ``distribute_datasets_from_function``."""
        return self.distribute_datasets_from_function(dataset_fn, options)

    def experimental_distribute_values_from_function(self: _ShortNames, value_fn: Callable[[Any], Any]) -> Any:
        """As ``distribute_values_from_function``."""
        return self.distribute_values_from_function(value_fn)


class NumpyDatasets:
    """``make_numpy_dataset``, of the strategies whose pages list it."""

    def make_numpy_dataset(self, numpy_input: Any) -> Any:
        """A dataset of the rows of a nest of arrays, neither batched nor distributed; lists of arrays are stacked."""
        from drumline.distribute.input import v1  # on first use: it imports grain, which takes a second

        return v1.make_numpy_dataset(numpy_input)

    def experimental_make_numpy_dataset(self, numpy_input: Any) -> Any:
        """As ``make_numpy_dataset``."""
        return self.make_numpy_dataset(numpy_input)
