"""Processes of the simulation: an asyncio loop each, on virtual time, that can be frozen and killed at any event."""

import asyncio
import contextvars
from asyncio import events
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

from greenlet import getcurrent, greenlet

from sim.timeline import Timeline

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_CLOSES = 10
"""A coroutine may hold several `async with` blocks, each of which takes one close to leave."""


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop of one process: its callbacks are events of the timeline."""

    def __init__(self, process: "Process") -> None:
        super().__init__()
        self._process = process
        self.set_task_factory(process.make_task)
        self.set_exception_handler(process.take_exception)

    def time(self) -> float:
        return self._process.timeline.now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._process.timeline.soon(lambda: self._process.perform(handle))
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._process.timeline.at(when, lambda: self._process.perform(handle))
        return handle

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """The event stays in the queue and does nothing."""

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Runs `func` as a thread would: others go on wherever it calls `pause`."""
        future: asyncio.Future[T] = self.create_future()

        def live() -> None:
            try:
                returned = func(*args)
            except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets it
                if not future.cancelled():
                    future.set_exception(error)
            else:
                if not future.cancelled():
                    future.set_result(returned)

        greenlet(live).switch()
        return future

    async def create_unix_connection(  # type: ignore[override] # only what our agent uses: a connected socket
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], path: Any = None, *, sock: Any, **_: Any
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        protocol = protocol_factory()
        transport: asyncio.Transport = sock.join(self._process, protocol)
        protocol.connection_made(transport)
        return transport, protocol


def pause(loop: asyncio.AbstractEventLoop, seconds: float | None) -> None:
    """Lets the calling thread of the simulation wait; for ever without `seconds`."""
    thread = getcurrent()
    if seconds is not None:
        loop.call_later(seconds, thread.switch)
    assert thread.parent is not None, "only code that runs in an executor can wait"
    thread.parent.switch()


class Process:
    """What a `kill -9` ends and a SIGSTOP freezes. `on_error` gets what no code of ours caught."""

    def __init__(
        self, timeline: Timeline, name: str, on_error: Callable[[str], None], context: Context | None = None
    ) -> None:
        self.timeline = timeline
        self.name = name
        self.alive = True
        self.frozen = False
        self._thawed_at = -1.0
        self._on_error = on_error
        self._stalled: list[asyncio.Handle] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._context = context or contextvars.copy_context()
        self.loop = VirtualLoop(self)

    def perform(self, handle: asyncio.Handle) -> None:
        """Runs one callback, unless the process is dead; a frozen one runs it when it thaws."""
        if not self.alive or handle.cancelled():
            return
        if self.frozen:
            self._stalled.append(handle)
            return
        self.enter(handle._run)

    def enter(self, fn: Callable[[], object]) -> None:
        """Runs `fn` as code of this process."""
        events._set_running_loop(self.loop)
        try:
            fn()
        finally:
            events._set_running_loop(None)

    def start(self, main: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Begins a task in the next moment."""
        self.loop.call_soon(lambda: self.loop.create_task(main()), context=self._context)

    def post(self, fn: Callable[[], object]) -> None:
        """Something arrives from outside."""
        self.loop.call_soon(fn, context=self._context)

    def freeze(self) -> None:
        self.frozen = True

    def stood_still_since(self, when: float) -> bool:
        """Whether it was frozen for some of the time since then."""
        return self.frozen or self._thawed_at >= when

    def thaw(self) -> None:
        """All that was due meanwhile happens now."""
        self.frozen = False
        self._thawed_at = self.timeline.now
        stalled, self._stalled = self._stalled, []
        for handle in stalled:
            self.timeline.soon(lambda handle=handle: self.perform(handle))  # type: ignore[misc] # bound early

    def kill(self) -> None:
        """Nothing of it runs any more, not even a `finally`."""
        self.alive = False

    def bury(self) -> None:
        """Takes the coroutines apart after the history: nobody sees what they still do."""
        self.alive = False
        events._set_running_loop(self.loop)
        for task in list(self._tasks):
            task._log_destroy_pending = False  # type: ignore[attr-defined] # asyncio's own flag
            _close(task.get_coro())
        events._set_running_loop(None)
        self._tasks.clear()
        self._stalled.clear()
        self.loop.close()

    def make_task(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **options)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def take_exception(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if self.alive:
            self._on_error(f"{self.name}: {context.get('message')}: {context.get('exception')!r}")


def _close(coro: Any) -> None:
    for _ in range(_CLOSES):
        try:
            coro.close()
        except RuntimeError:
            continue
        except BaseException:  # noqa: BLE001 - a `finally` of dead code met its dead world
            return
        return
