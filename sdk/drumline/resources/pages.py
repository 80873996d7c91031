"""Lists that fetch their next page when the last one is used up."""

from collections.abc import Iterator
from typing import TypeVar

from drumline._transport import Params, Transport
from drumline.contracts.api import Page
from drumline.contracts.base import Reply

Item = TypeVar("Item", bound=Reply)


def iterate_pages(transport: Transport, path: str, item: type[Item], params: Params | None = None) -> Iterator[Item]:
    """Every item of a list, page by page."""
    cursor: str | None = None
    while True:
        page = transport.get(path, Page[item], {**(params or {}), "cursor": cursor})  # type: ignore[valid-type]  # generic at run time
        yield from page.items
        cursor = page.next
        if cursor is None:
            return
