"""Points of metrics as files, and lists as tables of pyarrow and pandas, which the extra `data` brings."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import IO, TYPE_CHECKING

from drumline._transport import TIMEOUT_S, Params, Transport
from drumline.errors import MissingExtraError

if TYPE_CHECKING:
    from pyarrow import Table

_PIECE_BYTES = 256 * 1024
_NOT_IN_JSON = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_LEAST, _MOST = -(2**63), 2**63 - 1


def save_points(transport: Transport, path: str, params: Params, target: IO[bytes]) -> None:
    """Writes the file at `path` as it comes."""
    with transport.stream(path, params, {}, TIMEOUT_S) as answer:
        for piece in answer.iter_bytes(_PIECE_BYTES):
            target.write(piece)


def read_points(transport: Transport, path: str, params: Params) -> "Table":
    """The stream of Arrow at `path` as a table. Raises MissingExtraError where pyarrow is not installed."""
    with _named():
        from pyarrow import BufferReader, ipc
    return ipc.open_stream(BufferReader(transport.send("GET", path, params=params).content)).read_all()


def to_table(rows: Iterable[Mapping[str, object]]) -> "Table":
    """A table with a column for each name, in the order in which rows have them; what a row lacks is null.

    Columns are flags, whole numbers, float64, times in UTC, or else texts: of lists and objects their JSON. Raises
    MissingExtraError where pyarrow is not installed.
    """
    with _named():
        import pyarrow as pa
    columns: dict[str, list[object]] = {}
    count = 0
    for row in rows:
        for name, value in row.items():
            column = columns.setdefault(name, [])
            column.extend([None] * (count - len(column)))
            column.append(value)
        count += 1
    for column in columns.values():
        column.extend([None] * (count - len(column)))
    types = {"timestamp": pa.timestamp("us", tz="UTC")}
    typed = {name: _typed(column) for name, column in columns.items()}
    return pa.table({name: pa.array(values, types.get(kind, kind)) for name, (values, kind) in typed.items()})


def number_of(value: object) -> object:
    """A number that JSON does not have, which is told by its name; anything else as it is."""
    return _NOT_IN_JSON.get(value, value) if isinstance(value, str) else value


def _typed(column: Sequence[object]) -> tuple[list[object], str]:
    """The values as one type, and its name in pyarrow."""
    kinds = {type(value) for value in column if value is not None}
    if kinds == {bool}:
        return [*column], "bool"
    if kinds and kinds <= {int, float}:
        numbers = [value for value in column if isinstance(value, (int, float))]
        if int in kinds and all(_is_whole(number) for number in numbers):  # of which a float would not hold each
            return [int(value) if isinstance(value, float) else value for value in column], "int64"
        return [float(value) if isinstance(value, int) else value for value in column], "float64"
    if kinds and all(issubclass(kind, datetime) for kind in kinds):
        return [*column], "timestamp"
    return [value if value is None else _text(value) for value in column], "string"


def _is_whole(number: float) -> bool:
    return _LEAST <= number <= _MOST and int(number) == number


def _text(value: object) -> str:
    return str(value) if isinstance(value, (str, datetime)) else json.dumps(value)


@contextmanager
def _named() -> Iterator[None]:
    """A module that is missing is told with the extra that has it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"This needs {error.name}, which is not installed; pip install 'drumline[data]'."
        ) from error
