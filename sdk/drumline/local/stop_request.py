"""A wish that the program stops, and when it is told: at once, or once it had the chance to save its state."""

import threading

from drumline.job import RunStopping

MAX_STEPS_PER_OFFER = 16
"""Of a program that offers its state seldom, waiting for the next time would take too long."""


class StopRequest:
    """Becomes RunStopping at the next step. A program that offers its state every few steps is first let come to it."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._insisted = False
        self._saved = False
        self._steps = 0
        self._steps_per_offer = 0

    @property
    def asked(self) -> bool:
        """Whether the run is to stop."""
        return self._asked.is_set()

    def ask(self) -> None:
        """From now on the program is to stop; asked again, without the chance to save."""
        self._insisted = self._asked.is_set()
        self._asked.set()

    def insist(self) -> None:
        """The program is to stop at its next step."""
        self._insisted = True
        self._asked.set()

    def step_began(self) -> None:
        """`strategy.run` was called. Raises RunStopping."""
        self._steps += 1
        self.raise_if_due()

    def offered(self, *, saved_in_stop: bool) -> None:
        """The program came to the point where it offers its state."""
        self._steps_per_offer, self._steps = self._steps, 0
        self._saved = self._saved or saved_in_stop

    def raise_if_due(self) -> None:
        """Raises RunStopping if the run is to stop, unless the program is about to offer its state."""
        if self.asked and (self._insisted or self._saved or not self._will_offer()):
            raise RunStopping("the run was asked to stop")

    def raise_if_insisted(self) -> None:
        """Raises RunStopping if the run is to stop without the chance to save."""
        if self._insisted:
            raise RunStopping("the run was asked to stop")

    def _will_offer(self) -> bool:
        """Whether it did so regularly, and no more steps have passed since than did between the last two times."""
        return 0 < self._steps_per_offer <= MAX_STEPS_PER_OFFER and self._steps <= self._steps_per_offer
