"""How long a request holds the interpreter: the processor time of each of its turns of the loop."""

import time
from collections.abc import Awaitable, Generator
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

HOLD_S = 0.05
"""For so long at most may a request hold the interpreter between two yields, in seconds of processor time."""


class Timed:
    """An application that notes the processor time of the longest turn of a request between two yields, in seconds."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.longest = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _Turns(self, self._app(scope, receive, send))


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
