"""A wish that the program stops: how it comes, and when it is told: at once, or after a chance to save."""

import signal
import socket
import threading
from collections.abc import Callable

from drumline.distribute.observe import (
    CollectiveRecord,
    PlacementRecord,
    ReductionRecord,
    StepRecord,
    VariableRecord,
)
from drumline.job import RunStopping

MAX_STEPS_PER_OFFER = 16
"""Of a program that offers its state seldom, waiting for the next time would take too long."""


class StopRequest:
    """Becomes RunStopping at the next step. A program that offers its state every few steps is first let come to it."""

    def __init__(self) -> None:
        self._requested = threading.Event()
        self._forced = False
        self._saved = False
        self._steps = 0
        self._steps_per_offer = 0

    @property
    def is_requested(self) -> bool:
        """Whether the run is to stop."""
        return self._requested.is_set()

    def request(self) -> None:
        """From now on the program is to stop; asked again, without the chance to save."""
        self._forced = self._requested.is_set()
        self._requested.set()

    def force(self) -> None:
        """The program is to stop at its next step."""
        self._forced = True
        self._requested.set()

    def step_began(self) -> None:
        """`strategy.run` was called. Raises RunStopping."""
        self._steps += 1
        self.raise_if_due()

    def note_offer(self, *, saved_in_stop: bool) -> None:
        """The program came to the point where it offers its state."""
        self._steps_per_offer, self._steps = self._steps, 0
        self._saved = self._saved or saved_in_stop

    def raise_if_due(self) -> None:
        """Raises RunStopping if the run is to stop, unless the program is about to offer its state."""
        if self.is_requested and (self._forced or self._saved or not self._will_offer()):
            raise RunStopping("the run was asked to stop")

    def raise_if_forced(self) -> None:
        """Raises RunStopping if the run is to stop without the chance to save."""
        if self._forced:
            raise RunStopping("the run was asked to stop")

    def _will_offer(self) -> bool:
        """Whether it did so regularly, and no more steps have passed since than did between the last two times."""
        return 0 < self._steps_per_offer <= MAX_STEPS_PER_OFFER and self._steps <= self._steps_per_offer


class StopBetweenSteps:
    """An observer that raises RunStopping where the next step would begin, and looks at nothing else."""

    def __init__(self, request: StopRequest) -> None:
        self._request = request

    def placement(self, record: PlacementRecord) -> None:
        """Not looked at."""

    def variable_created(self, record: VariableRecord) -> None:
        """Not looked at."""

    def step_began(self, step: int) -> None:
        """Raises RunStopping once the run was asked to stop."""
        self._request.step_began()

    def step_ended(self, record: StepRecord) -> None:
        """Not looked at."""

    def collective(self, record: CollectiveRecord) -> None:
        """Not looked at."""

    def reduction(self, record: ReductionRecord) -> None:
        """Not looked at."""


def on_sigterm(stop: Callable[[], None]) -> None:
    """Calls `stop` for each SIGTERM from now on. To be called from the main thread, once.

    A Python handler runs in the main thread, and only when that thread looks up from its byte code. If the kernel
    delivers the signal to another thread, as one of XLA's, CPython leaves the main thread's flag unset, and a loop that
    never waits runs for ever. So a thread listens at the wake-up descriptor, which every delivery writes to.
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
