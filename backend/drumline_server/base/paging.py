"""Keyset cursors: where the next page of a list begins, as an opaque text that is checked when it comes back."""

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import TypeVar

from drumline.contracts.api import Page
from drumline_server.base.errors import InvalidRequestError

MAX_CURSOR = 900
"""Characters: of a list by a text, its beginning is in it."""
_INT64 = 2**63

Row = TypeVar("Row")
Item = TypeVar("Item")


def encode_cursor(*key: int | str) -> str:
    """An opaque text for the sort key of a page's last row."""
    return base64.urlsafe_b64encode(json.dumps(key, separators=(",", ":")).encode()).decode().rstrip("=")


def decode_cursor(cursor: str, *types: type[int] | type[str]) -> tuple[int | str, ...]:
    """The sort key in `cursor`: one value of each of `types`, integers within 64 bits.

    Raises:
        InvalidRequestError: `cursor` was not made by `encode_cursor` for such a key.

    """
    try:
        key = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise _garbage() from None
    if not isinstance(key, list) or len(key) != len(types):
        raise _garbage()
    if not all(_fits(value, wanted) for value, wanted in zip(key, types, strict=True)):
        raise _garbage()
    return tuple(key)


def page_of(
    rows: Sequence[Row], limit: int, *, item: Callable[[Row], Item], key: Callable[[Row], tuple[int | str, ...]]
) -> Page[Item]:
    """A page of `rows`, of which the query fetched one more than `limit` to see whether others follow."""
    shown = rows[:limit]
    following = encode_cursor(*key(shown[-1])) if len(rows) > limit else None
    return Page(items=tuple(item(row) for row in shown), next=following)


def _fits(value: object, wanted: type[int] | type[str]) -> bool:
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool) and -_INT64 <= value < _INT64
    return isinstance(value, str) and "\x00" not in value and value.isprintable()


def _garbage() -> InvalidRequestError:
    return InvalidRequestError(
        "cursor", "is not one that this list gave out", hint="Leave the cursor out to get the first page."
    )
