"""Sources that read files: text lines, ArrayRecord, TFRecord, Parquet. Files are read in the order given."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import grain
import numpy as np

from drumline.distribute.errors import InvalidValueError
from drumline.distribute.input import spec as specs
from drumline.distribute.input.ops import UNKNOWN, Grain, first_element
from drumline.distribute.input.rows import ArrayRows, leading_rows
from drumline.distribute.input.sources import host_element
from drumline.distribute.input.streams import Concatenated, TextFile
from drumline.distribute.input.tf_records import RecordFile

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

_RECORD = specs.ArraySpec((), np.dtype(object))


@dataclass(frozen=True, eq=False)
class FileSource:
    """Elements of several files, each opened by ``open_files``; ``record_spec`` None means to look at the first one."""

    paths: tuple[str, ...]
    open_files: Callable[[tuple[str, ...]], Grain]
    name: str
    record_spec: Any = _RECORD
    count: Callable[[tuple[str, ...]], int] | None = None

    @property
    def files(self) -> tuple[str, ...]:
        return self.paths

    @property
    def knows_spec(self) -> bool:
        return self.record_spec is not None

    @property
    def parts(self) -> tuple[Any, ...]:
        return ()

    def with_parts(self, parts: tuple[Any, ...]) -> FileSource:
        return self

    def only(self, positions: Sequence[int]) -> FileSource:
        return replace(self, paths=tuple(self.paths[position] for position in positions))

    def open(self) -> Grain:
        return self.open_files(self.paths)

    def spec(self) -> Any:
        return specs.spec_of(first_element(self.open())) if self.record_spec is None else self.record_spec

    def cardinality(self) -> int:
        return UNKNOWN if self.count is None else self.count(self.paths)

    def __str__(self) -> str:
        return f"{self.name} of {len(self.paths)} file{'s' * (len(self.paths) != 1)}"


def text_lines(paths: Paths) -> FileSource:
    """Lines as str, without their line end; UTF-8."""
    return FileSource(
        existing_files(paths), lambda files: Concatenated([TextFile(path) for path in files]), "text_lines"
    )


def tf_records(paths: Paths, compression_type: str | None = None) -> FileSource:
    """Records of TFRecord files as bytes, their checksums verified."""
    if compression_type not in (None, "", "GZIP", "ZLIB"):
        raise InvalidValueError(f"compression_type={compression_type!r:.80} is unknown; use 'GZIP', 'ZLIB' or None")
    is_packed = bool(compression_type)
    return FileSource(
        existing_files(paths),
        lambda files: Concatenated([RecordFile(path, is_packed=is_packed) for path in files]),
        "tf_records",
    )


def array_rows(paths: Paths) -> FileSource:
    """Rows of .npy files, or of .npz files as dicts by the arrays' names."""

    def open_files(files: tuple[str, ...]) -> Grain:
        opened = [ArrayRows(_arrays_of(path)) for path in files]
        return opened[0] if len(opened) == 1 else grain.MapDataset.concatenate(opened)

    def count(files: tuple[str, ...]) -> int:
        return sum(leading_rows(_arrays_of(path)) for path in files)

    return FileSource(existing_files(paths), open_files, "array_files", record_spec=None, count=count)


def _arrays_of(path: str) -> Any:
    """What a file holds; InvalidValueError naming it where that is no array of rows."""
    try:
        # Mapped, where the file is one array: a batch reads its own rows. Pickles would run the file's code.
        loaded = np.load(path, mmap_mode="r", allow_pickle=False)
        arrays = loaded if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
        leading_rows(arrays)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidValueError(f"{path!r} holds no arrays of rows that NumPy reads without pickle: {error}") from error
    return arrays


def array_records(paths: Paths) -> FileSource:
    """Records of ArrayRecord files as bytes, with random access."""

    def source(files: tuple[str, ...]) -> Any:
        return grain.sources.ArrayRecordDataSource(list(files))

    return FileSource(
        existing_files(paths),
        lambda files: grain.MapDataset.source(source(files)).map(host_element),
        "array_records",
        count=lambda files: len(source(files)),
    )


def parquet_rows(paths: Paths) -> FileSource:
    """Rows of Parquet files as dicts of scalars by column name. Needs pyarrow."""
    if find_spec("pyarrow") is None:
        raise ImportError("reading Parquet files needs pyarrow; install it with: pip install pyarrow")

    def open_files(files: tuple[str, ...]) -> Grain:
        return Concatenated([grain.experimental.ParquetIterDataset(path) for path in files]).map(host_element)

    return FileSource(existing_files(paths), open_files, "parquet_rows", record_spec=None)


def existing_files(paths: Paths) -> tuple[str, ...]:
    """The paths as strings; FileNotFoundError for one that is missing, ValueError for none."""
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not given:
        raise InvalidValueError("no files were given; a file source needs at least one path")
    files = tuple(os.fspath(path) for path in given)
    for path in files:
        if not os.path.isfile(path):
            raise FileNotFoundError(f"input file {path!r} does not exist")
    return files
