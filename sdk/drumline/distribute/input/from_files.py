"""Datasets of what files hold. FILE sharding gives each worker some of the files."""

from __future__ import annotations

from typing import Any, Self

from drumline.distribute.input import files


class FromFiles:
    """How a ``Dataset`` is made from files, which are read in the order given."""

    @classmethod
    def text_lines(cls, paths: files.Paths) -> Self:
        """The lines of text files, in order, as str."""
        return cls._of(files.text_lines(paths))

    @classmethod
    def tf_records(cls, paths: files.Paths, compression_type: str | None = None) -> Self:
        """The records of TFRecord files, as bytes; a broken one is a ValueError that names file and offset.

        ``compression_type``: "GZIP", "ZLIB", or None for files that are not compressed, as TensorFlow calls them.
        """
        return cls._of(files.tf_records(paths, compression_type))

    @classmethod
    def array_files(cls, paths: files.Paths) -> Self:
        """The rows of NumPy's files, in order: of .npy files their array's, of .npz files dicts of their arrays'.

        Files of one array are mapped into memory, not read as a whole. Pickled objects are refused, with a ValueError.
        """
        return cls._of(files.array_rows(paths))

    @classmethod
    def array_records(cls, paths: files.Paths) -> Self:
        """The records of ArrayRecord files, in order, as bytes."""
        return cls._of(files.array_records(paths))

    @classmethod
    def parquet_rows(cls, paths: files.Paths) -> Self:
        """The rows of Parquet files, in order, as dicts of scalars. ImportError without pyarrow."""
        return cls._of(files.parquet_rows(paths))

    @classmethod
    def _of(cls, source: Any) -> Self:
        return cls(source)  # type: ignore[call-arg]  # a Dataset is made of its source
