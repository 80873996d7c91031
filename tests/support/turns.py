"""How long a request holds the interpreter: the processor time of each of its turns of the loop."""

import gc
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send

from support.databases import new_database
from support.edge import EdgeServer, edge_server
from support.pace import processor_factor

W = TypeVar("W")
HOLD_S = 0.05
"""For so long at most may a request hold the interpreter between two yields, in seconds of processor time."""


def hold_limit_s() -> float:
    """HOLD_S as this machine has it now: the same work is timed beside each measurement, so it is of the code alone."""
    return HOLD_S * processor_factor()


class Timed:
    """An application that notes the processor time of the longest turn of a request between two yields, in seconds."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._is_over = threading.Event()
        self.longest = 0.0

    def begin(self) -> None:
        """Measures anew. A server freezes what it holds at its start, so what tests left is none of its garbage."""
        gc.collect()
        gc.freeze()
        self._is_over.clear()
        self.longest = 0.0

    def end(self) -> float:
        """The longest turn of the request since `begin`. Its answer is read before its last turn is over."""
        assert self._is_over.wait(30)
        return self.longest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await _Turns(self, self._app(scope, receive, send))
        finally:
            self._is_over.set()


class _Turns:
    def __init__(self, timed: Timed, request: Awaitable[None]) -> None:
        self._timed = timed
        self._steps = request.__await__()

    def __await__(self) -> Generator[Any, Any, None]:  # Any: whatever the loop waits for
        failed: BaseException | None = None
        while True:
            began = time.thread_time()
            try:
                awaited = next(self._steps) if failed is None else self._steps.throw(failed)
            except StopIteration:
                return
            finally:
                self._timed.longest = max(self._timed.longest, time.thread_time() - began)
            try:
                failed = None
                yield awaited
            except BaseException as error:  # noqa: BLE001 - as a task tells what it waited for in vain
                failed = error


@contextmanager
def timed_world(directory: Path, make: Callable[[EdgeServer], W]) -> Iterator[tuple[W, Timed]]:
    """What `make` puts on a server of its own, and the time of that server's turns from then on."""
    with new_database("sqlite") as url, edge_server(url, directory) as server:
        made = make(server)
        stack = server.app.middleware_stack
        assert stack is not None
        timed = server.app.middleware_stack = Timed(stack)
        timed.begin()
        yield made, timed
        gc.unfreeze()
