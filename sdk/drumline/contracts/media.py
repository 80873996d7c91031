"""What a program logs beside numbers: histograms, images, texts and tables, each within bounds."""

import struct
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Sequence
from typing import Annotated, Literal
from zlib import crc32

from pydantic import Field, StringConstraints, model_validator

from drumline.contracts.base import AtMost, Contract, Finite, NotFinite, Text

MediaKind = Literal["histogram", "image", "text", "table"]

MAX_BINS = 64
MAX_IMAGE_BYTES = 512 * 1024
"""Of one PNG: in base64 it fits in a batch of telemetry, which has at most 1 MiB."""
MAX_IMAGE_SIDE = 4_096
MAX_TEXT = 65_536
MAX_COLUMNS = 100
MAX_ROWS = 1_000
MAX_CELLS = 10_000
MAX_CELL_TEXT = 1_000
MAX_TABLE_TEXT = 100_000
"""Characters of all cells and columns: each escaped, as JSON may have to, they still fit in a batch."""
MAX_MEDIA_NAMES = 200
MAX_MEDIA_VALUES = 10_000
MAX_MEDIA_BYTES = 256 * 1024 * 1024
"""Of names, values and bytes that one process logs; of bytes as far as the program itself knows them."""
MAX_SUMMARY_NAMES = 100
MAX_SUMMARY_NAME = 200
MAX_SUMMARY_TEXT_BYTES = 256
"""A text of a summary is stored as other texts that lists sort by: of UTF-8 so many bytes, and none is cut."""
EXACT_BELOW = 2**53
"""Greater whole numbers lose digits in JavaScript."""

_MAGIC = b"\x89PNG\r\n\x1a\n"
_END = b"\x00\x00\x00\x00IEND\xaeB`\x82"
_HEADER = struct.Struct(">I4sII5sI")
_Count = Annotated[int, Field(ge=0, lt=2**53)]


def read_png_size(png: bytes) -> tuple[int, int]:
    """Width and height of a PNG. Raises ValueError, naming the flaw, for what is none or is too large."""
    if not png.startswith(_MAGIC) or len(png) < len(_MAGIC) + _HEADER.size or not png.endswith(_END):
        raise ValueError(f"{len(png)} bytes that begin with {png[:8]!r} are no whole PNG")
    length, kind, width, height, _, checksum = _HEADER.unpack_from(png, len(_MAGIC))
    if (length, kind) != (13, b"IHDR") or crc32(png[12:29]) != checksum:
        raise ValueError("the PNG has a damaged header")
    if not (0 < width <= MAX_IMAGE_SIDE and 0 < height <= MAX_IMAGE_SIDE):
        raise ValueError(f"the image has {width} x {height} pixels; at most {MAX_IMAGE_SIDE} either way")
    if len(png) > MAX_IMAGE_BYTES:
        raise ValueError(f"the image has {len(png)} bytes as PNG; at most {MAX_IMAGE_BYTES}")
    return width, height


class HistogramValue(Contract):
    """How the values of an array are spread: bins of equal width from the least to the greatest finite one."""

    kind: Literal["histogram"] = "histogram"
    counts: Annotated[tuple[_Count, ...], Field(fail_fast=True), AtMost(MAX_BINS)]
    """By bin; empty where no value is finite."""
    min: Finite | None
    """Of the finite values; `None` where there is none."""
    max: Finite | None
    count: _Count
    """Of all values."""
    nan_count: _Count = 0
    inf_count: _Count = 0

    @model_validator(mode="after")
    def _check(self) -> "HistogramValue":
        finite = self.count - self.nan_count - self.inf_count
        if sum(self.counts) != finite:
            raise ValueError(f"its bins hold {sum(self.counts)} values, and {finite} of {self.count} are finite")
        if (self.min is None) != (not self.counts) or (self.max is None) != (not self.counts):
            raise ValueError("has bins without bounds, or bounds without bins")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"goes from {self.min} to {self.max}")
        return self


class ImageValue(Contract):
    """A picture as PNG, in base64."""

    kind: Literal["image"] = "image"
    png: Annotated[str, StringConstraints(max_length=(MAX_IMAGE_BYTES + 2) // 3 * 4, pattern=r"^[A-Za-z0-9+/]*={0,2}$")]

    @model_validator(mode="after")
    def _check(self) -> "ImageValue":
        read_png_size(self.read())
        return self

    def read(self) -> bytes:
        """The PNG."""
        try:
            return a2b_base64(self.png, strict_mode=True)
        except Base64Error as error:
            raise ValueError(f"is no base64: {error}") from None


class TextValue(Contract):
    """A text, shown as it is."""

    kind: Literal["text"] = "text"
    text: Annotated[Text, StringConstraints(max_length=MAX_TEXT)]


_CellText = Annotated[Text, StringConstraints(max_length=MAX_CELL_TEXT)]
_Whole = Annotated[int, Field(gt=-EXACT_BELOW, lt=EXACT_BELOW, strict=True)]
Cell = Annotated[bool, Field(strict=True)] | _Whole | Finite | _CellText | None
_Row = Annotated[tuple[Cell, ...], Field(fail_fast=True), AtMost(MAX_COLUMNS)]


class OddCell(Contract):
    """A cell whose number JSON does not have; `None` stands in its place."""

    row: Annotated[int, Field(ge=0, lt=MAX_ROWS)]
    column: Annotated[int, Field(ge=0, lt=MAX_COLUMNS)]
    value: NotFinite


class TableValue(Contract):
    """Rows of cells under names of columns."""

    kind: Literal["table"] = "table"
    columns: Annotated[tuple[_CellText, ...], Field(fail_fast=True, min_length=1), AtMost(MAX_COLUMNS)]
    rows: Annotated[tuple[_Row, ...], Field(fail_fast=True), AtMost(MAX_ROWS)]
    not_finite: Annotated[tuple[OddCell, ...], Field(fail_fast=True), AtMost(MAX_CELLS)] = ()

    @model_validator(mode="after")
    def _check(self) -> "TableValue":
        if flaw := table_flaw(self.columns, self.rows):
            raise ValueError(flaw)
        if any(odd.row >= len(self.rows) or odd.column >= len(self.columns) for odd in self.not_finite):
            raise ValueError("names a cell that it does not have")
        return self


def table_flaw(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str | None:
    """What of the size of a table is beyond a bound, in words; None if nothing is."""
    if not 0 < len(columns) <= MAX_COLUMNS:
        return f"has {len(columns)} columns; from 1 to {MAX_COLUMNS} are taken"
    if len(rows) > MAX_ROWS:
        return f"has {len(rows)} rows; at most {MAX_ROWS}"
    odd = next((place for place, row in enumerate(rows) if len(row) != len(columns)), None)
    if odd is not None:
        return f"has {len(rows[odd])} cells in row {odd}, and {len(columns)} columns"
    if len(columns) * len(rows) > MAX_CELLS:
        return f"has {len(columns)} x {len(rows)} cells; at most {MAX_CELLS}"
    texts = [cell for row in (columns, *rows) for cell in row if isinstance(cell, str)]
    long = next((text for text in texts if len(text) > MAX_CELL_TEXT), None)
    if long is not None:
        return f"has a cell of {len(long)} characters, {long[:20]!r}...; at most {MAX_CELL_TEXT}"
    length = sum(map(len, texts))
    return f"has {length} characters in all cells; at most {MAX_TABLE_TEXT}" if length > MAX_TABLE_TEXT else None


MediaContent = Annotated[HistogramValue | ImageValue | TextValue | TableValue, Field(discriminator="kind")]
