"""Lists come in pages."""

from typing import Generic, TypeVar

from drumline.contracts.base import Reply

MAX_PAGE = 200
Item = TypeVar("Item")


class Page(Reply, Generic[Item]):
    """One page of a list. `next` is the cursor of the following page, `None` on the last."""

    items: tuple[Item, ...]
    next: str | None = None
