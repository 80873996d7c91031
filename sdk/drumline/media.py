"""What `run.log` takes beside numbers, and the run's summary.

    run.log(step=step, loss=loss, weights=Histogram(layer), sample=Image(pixels), note=Text("warm-up"))
    run.log(step=step, confusion=Table(["label", "right"], [["cat", 12], ["dog", 7]]))
    run.summary["best"] = best

Bounds stand in `drumline.contracts.media`; what is beyond one raises MediaError.
"""

import math
import numbers
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from drumline.contracts.base import unstorable_text
from drumline.contracts.media import (
    EXACT_BELOW,
    MAX_SUMMARY_NAME,
    MAX_SUMMARY_NAMES,
    MAX_SUMMARY_TEXT_BYTES,
    MAX_TEXT,
    Cell,
    read_png_size,
    table_flaw,
)
from drumline.errors import MediaError

Array = Any
"""A NumPy or JAX array, a variable, or a list of numbers. Any: this module must not import either."""


class Histogram:
    """How the values of an array are spread: 64 bins of equal width, the least and greatest, how many are NaN.

    An array on a device is copied there and counted later, on another thread.
    """

    def __init__(self, values: Array) -> None:
        self.values = values


class Image:
    """A picture: a PNG, or pixels [height, width] or [height, width, channels], of 1 to 4 channels.

    Pixels are uint8, bool, or floats from 0 to 1; floats beyond are clipped. Raises MediaError for bytes that are no
    PNG within bounds.
    """

    def __init__(self, pixels: Array | bytes) -> None:
        if isinstance(pixels, bytes):
            try:
                read_png_size(pixels)
            except ValueError as error:
                raise MediaError(f"drumline.Image: {error}") from None
        self.pixels = pixels


class Text:
    """A text of at most 65 536 characters. Raises MediaError for a longer one."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise MediaError(f"drumline.Text takes a str; it got a {type(text).__name__}")
        if len(text) > MAX_TEXT:
            raise MediaError(f"drumline.Text got {len(text)} characters; at most {MAX_TEXT}")
        self.text = _storable("drumline.Text", text)


class Table:
    """Rows of cells under columns: at most 100 columns, 1000 rows, 10 000 cells and 100 000 characters.

    A cell is a text, a number (whole ones below 2**53), a flag or None. Raises MediaError for anything else.
    """

    def __init__(self, columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:  # Any: NumPy's numbers too
        if odd := [name for name in columns if not isinstance(name, str)]:
            raise MediaError(f"drumline.Table takes names of columns as str; {odd[0]!r} is a {type(odd[0]).__name__}")
        self.columns = tuple(_storable("drumline.Table", name) for name in columns)
        self.rows: tuple[tuple[Cell, ...], ...] = tuple(tuple(_cell(cell) for cell in row) for row in rows)
        if flaw := table_flaw(self.columns, self.rows):
            raise MediaError(f"drumline.Table {flaw}")


Media = Histogram | Image | Text | Table


def _storable(what: str, text: str) -> str:
    if flaw := unstorable_text(text):
        raise MediaError(f"{what} got a text that {flaw}")
    return text


def _cell(cell: Any) -> Cell:  # Any: whatever a program puts into a table
    if cell is None or isinstance(cell, (bool, float)):
        return cell
    if isinstance(cell, str):
        return _storable("drumline.Table", cell)
    plain = cell.item() if hasattr(cell, "item") and getattr(cell, "size", 0) == 1 else cell
    if isinstance(plain, int) and not -EXACT_BELOW < plain < EXACT_BELOW:
        raise MediaError(f"drumline.Table got the number {plain}; whole numbers are below 2**53: pass it as a text")
    if plain is None or isinstance(plain, (bool, int, float, str)):
        return plain
    if isinstance(plain, numbers.Real):
        return float(plain)
    raise MediaError(f"drumline.Table takes texts, numbers, flags and None; it got a {type(cell).__name__}")


SummaryValue = int | float | str
_WHOLE_BELOW = 2**63
"""Whole numbers of 64 bits stay whole; float64 would round a seed or a hash."""
Send = Callable[[Mapping[str, SummaryValue]], None]


class Summary(MutableMapping[str, SummaryValue]):
    """Values by name that stand for the run: `run.summary["best"] = 0.9`, `run.summary(best=0.9, epoch=7)`.

    The last value of a name wins; none can be taken away. Reads give what this program has set. Numbers, whatever has
    one element and can be one, and texts of at most 256 bytes; 100 names. Raises MediaError for anything else.
    """

    def __init__(self, send: Send = lambda values: None) -> None:
        self._send = send
        self._values: dict[str, SummaryValue] = {}

    def __call__(self, **values: Any) -> None:  # Any: as run.log takes numbers
        """Sets several at once."""
        self._set(values)

    def update(self, *given: Any, **values: Any) -> None:  # Any: a mapping or pairs
        """Sets several at once."""
        self._set(dict(*given, **values))

    def __setitem__(self, name: str, value: Any) -> None:  # Any: as run.log takes numbers
        self._set({name: value})

    def __getitem__(self, name: str) -> SummaryValue:
        return self._values[name]

    def __delitem__(self, name: str) -> None:
        raise MediaError(f"run.summary keeps {name!r}: a value can be replaced, and not taken away")

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def _set(self, values: Mapping[str, Any]) -> None:  # Any: as given
        told = {_summary_name(name): _summary_value(name, value) for name, value in values.items()}
        if len({*self._values, *told}) > MAX_SUMMARY_NAMES:
            raise MediaError(f"run.summary holds at most {MAX_SUMMARY_NAMES} names; {[*told][-1]!r} is one more")
        self._values |= told
        if told:
            self._send(told)


def _summary_name(name: Any) -> str:  # Any: whatever is used as a key
    if not isinstance(name, str) or not 0 < len(name) <= MAX_SUMMARY_NAME:
        raise MediaError(f"run.summary takes names of 1 to {MAX_SUMMARY_NAME} characters; it got {str(name)[:40]!r}")
    return _storable("run.summary", name)


def _summary_value(name: str, value: Any) -> SummaryValue:  # Any: as given
    if isinstance(value, str):
        size = len(_storable("run.summary", value).encode())
        if size > MAX_SUMMARY_TEXT_BYTES:
            raise MediaError(f"run.summary[{name!r}] has {size} bytes; at most {MAX_SUMMARY_TEXT_BYTES}")
        return value
    if getattr(value, "size", 1) != 1 or not hasattr(value, "__float__"):
        raise MediaError(f"run.summary[{name!r}] is a {type(value).__name__}; it takes numbers and texts")
    if isinstance(value, numbers.Integral) and abs(int(value)) < _WHOLE_BELOW:
        return int(value)
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
