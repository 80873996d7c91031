"""Hears SIGTERM also while the main thread is busy."""

import signal
import socket
import threading
from collections.abc import Callable


def on_sigterm(stop: Callable[[], None]) -> None:
    """Calls `stop` for each SIGTERM from now on. To be called from the main thread, once.

    A Python handler runs in the main thread, and only when that thread looks up from its byte code. If the kernel
    delivers the signal to another thread, as one of XLA's, CPython leaves the main thread's flag unset, and a loop that
    never waits goes on for ever. So a thread listens at the wake-up descriptor, which every delivery writes to.
    """
    listener, alarm = socket.socketpair()
    alarm.setblocking(False)
    signal.set_wakeup_fd(alarm.detach(), warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    threading.Thread(target=_listen, args=(listener, stop), name="sigterm", daemon=True).start()


def _listen(listener: socket.socket, stop: Callable[[], None]) -> None:
    while numbers := listener.recv(64):
        if signal.SIGTERM in numbers:
            stop()
