"""Histograms, images, texts and tables as a run tells them: taken without waiting for a device, encoded later."""

import binascii
import math
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from drumline.contracts.media import MAX_BINS, MAX_IMAGE_BYTES, MAX_IMAGE_SIDE
from drumline.errors import MediaError
from drumline.media import Histogram, Image, Media, Table, Text

MAX_PIXEL_BYTES = 4 * 1024 * 1024
"""Of pixels that become a PNG here, a byte a channel: some 100 ms of a thread."""
_PIECE = 1_048_576
"""Values that are counted at once."""
_COLOR = {1: 0, 2: 4, 3: 2, 4: 6}
"""PNG's number for each count of channels: gray, gray with alpha, colour, colour with alpha."""

Content = dict[str, Any]  # Any: JSON of a `contracts.media.MediaContent`
Values = np.ndarray[Any, Any]  # Any: of whatever dtype, and shape


@dataclass(frozen=True, slots=True)
class Taken:
    """What was logged, out of the program's reach: it may change, donate or delete its array from now on."""

    kind: str
    nbytes: int
    """What it holds until it is encoded, on its device or here."""
    encode: Callable[[], Content]
    """Reads what is on a device, so it waits. Raises MediaError for an image that is too large as PNG."""


def check_alive(name: str, value: Any) -> None:  # Any: whatever is logged
    """Raises ValueError, naming it, for an array of JAX that was donated or deleted."""
    try:
        is_deleted = hasattr(value, "is_deleted") and value.is_deleted()
    except TypeError:  # of a value that is traced, as of a plan on shapes: it is no array yet
        return
    if is_deleted:
        raise ValueError(f"run.log got {name!r}, an array that was donated or deleted; log it before, or log a copy")


def take(name: str, value: Media) -> Taken:
    """Takes what is logged under `name`, nothing waits for a device. Raises MediaError, ValueError as `check_alive`."""
    match value:
        case Histogram():
            array = _copy(name, value.values)
            if np.dtype(array.dtype).kind == "c" or np.dtype(array.dtype).kind in "OSUMm":
                raise MediaError(f"run.log got {name!r}, a histogram of {array.dtype}; it takes real numbers")
            return Taken("histogram", int(array.nbytes), partial(_count, array))
        case Image(pixels=bytes() as png):
            return Taken("image", len(png), partial(_image, png))
        case Image():
            return _take_pixels(name, value.pixels)
        case Text():
            return Taken("text", len(value.text), lambda: {"kind": "text", "text": value.text})
        case Table():
            return Taken("table", sum(map(len, value.rows)) * 8, partial(_table, value))


def _copy(name: str, values: Any) -> Values:  # Any: an array, a variable, numbers
    value = getattr(values, "value", values)  # of a variable or mirrored value
    check_alive(name, value)
    if not hasattr(value, "dtype"):
        if hasattr(value, "values"):
            raise MediaError(f"run.log got {name!r} as a {type(value).__name__}; log one replica's, or gather them")
        try:
            return np.array(value)
        except ValueError as error:
            raise MediaError(f"run.log got {name!r}, which is no array: {error}") from None
    if not getattr(value, "is_fully_addressable", True):
        if not value.is_fully_replicated:
            raise MediaError(f"run.log got {name!r}, whose parts are on several hosts; log each host's part, or gather")
        value = value.addressable_data(0)
    copied: Values = value.copy()  # on its device: not waited for
    return copied


def _take_pixels(name: str, pixels: Any) -> Taken:  # Any: as Image has it
    array = _copy(name, pixels)
    shape = tuple(array.shape)
    channels = shape[2] if len(shape) == 3 else 1
    if len(shape) not in (2, 3) or channels not in _COLOR:
        raise MediaError(f"run.log got {name!r}, an image of shape {shape}; it has [height, width] or 1 to 4 channels")
    if not all(0 < side <= MAX_IMAGE_SIDE for side in shape[:2]):
        raise MediaError(f"run.log got {name!r}, an image of {shape[1]} x {shape[0]}; at most {MAX_IMAGE_SIDE} a side")
    if math.prod(shape) > MAX_PIXEL_BYTES:
        raise MediaError(
            f"run.log got {name!r}, an image of {math.prod(shape)} values; at most {MAX_PIXEL_BYTES}: pass it smaller"
        )
    if array.dtype != np.uint8 and not _is_unit(array):
        raise MediaError(f"run.log got {name!r}, an image of {array.dtype}; it takes uint8, bool, or floats of 0 to 1")
    if isinstance(array, np.ndarray):
        png = _png(name, array)  # so that what is wrong with it is told where it is logged
        return Taken("image", len(png), partial(_image, png))
    return Taken("image", int(array.nbytes), lambda: _image(_png(name, array)))


def _is_unit(array: Values) -> bool:
    """Whether its values are from 0 to 1: JAX's short floats are of no kind that NumPy knows."""
    return np.dtype(array.dtype).kind in "bf" or "float" in str(array.dtype)


def _table(table: Table) -> Content:
    odd = [
        {"row": row, "column": column, "value": "NaN" if math.isnan(cell) else "Infinity" if cell > 0 else "-Infinity"}
        for row, cells in enumerate(table.rows)
        for column, cell in enumerate(cells)
        if isinstance(cell, float) and not math.isfinite(cell)
    ]
    rows = [
        [None if isinstance(cell, float) and not math.isfinite(cell) else cell for cell in row] for row in table.rows
    ]
    return {"kind": "table", "columns": list(table.columns), "rows": rows, "not_finite": odd}


def _image(png: bytes) -> Content:
    return {"kind": "image", "png": binascii.b2a_base64(png, newline=False).decode()}


def _png(name: str, array: Values) -> bytes:
    png = to_png(np.asarray(array))
    if len(png) > MAX_IMAGE_BYTES:
        raise MediaError(f"run.log got {name!r}, an image of {len(png)} bytes as PNG; at most {MAX_IMAGE_BYTES}")
    return png


def to_png(pixels: Values) -> bytes:
    """Pixels [height, width] or [height, width, 1 to 4], uint8, bool or floats from 0 to 1, as PNG (ISO 15948)."""
    if pixels.dtype != np.uint8:
        unit = np.nan_to_num(pixels.astype(np.float32), nan=0.0, posinf=1.0, neginf=0.0)
        pixels = np.rint(np.clip(unit, 0.0, 1.0) * 255).astype(np.uint8)
    height, width, *rest = pixels.shape
    rows = pixels.reshape(height, -1)
    filtered = np.empty((height, rows.shape[1] + 1), np.uint8)
    filtered[:, 0] = 2  # each row as its difference to the one above: pictures compress better so
    filtered[0, 1:] = rows[0]
    np.subtract(rows[1:], rows[:-1], out=filtered[1:, 1:])
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOR[rest[0] if rest else 1], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(filtered.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in chunks)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _count(array: Values) -> Content:
    values = np.asarray(array).reshape(-1)
    if values.dtype.kind not in "iuf":
        values = values.astype(np.float32)  # flags and JAX's short floats, each of which float32 holds
    low, high, nans, infinities = math.inf, -math.inf, 0, 0
    for piece in _pieces(values):
        nans += int(np.isnan(piece).sum())
        infinities += int(np.isinf(piece).sum())
        finite = piece[np.isfinite(piece)]
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    counted = {"kind": "histogram", "count": int(values.size), "nan_count": nans, "inf_count": infinities}
    if low > high:
        return {**counted, "counts": [], "min": None, "max": None}
    return {**counted, "counts": _bins(values, low, high), "min": low, "max": high}


def _bins(values: Values, low: float, high: float) -> list[int]:
    """How many values are in each bin; of the last its end too."""
    if low == high:
        return [int(sum(np.isfinite(piece).sum() for piece in _pieces(values)))]
    scale = 1.0 if math.isfinite(high - low) else 0.5  # else the width overflows
    counts = np.zeros(MAX_BINS, np.int64)
    for piece in _pieces(values):
        finite = piece[np.isfinite(piece)] * scale
        place = (finite - low * scale) / (high * scale - low * scale)
        counts += np.bincount(np.minimum((place * MAX_BINS).astype(np.int64), MAX_BINS - 1), minlength=MAX_BINS)
    return [int(count) for count in counts]


def _pieces(values: Values) -> Iterator[Values]:
    for start in range(0, values.size, _PIECE):
        yield values[start : start + _PIECE].astype(np.float64)
