"""Virtual time: everything that happens is an event of one queue, in one thread."""

import heapq
import random
from collections import deque
from collections.abc import Callable

Act = Callable[[], None]


class Timeline:
    """Events by true time, in seconds. Events of the same instant happen in the order in which they were asked for."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.rng = random.Random(seed)
        self.log: list[tuple[float, str, str]] = []
        self._soon: deque[Act] = deque()
        self._later: list[tuple[float, int, Act]] = []
        self._number = 0

    def soon(self, act: Act) -> None:
        """Happens in this instant, after all that was asked for before."""
        self._soon.append(act)

    def at(self, when: float, act: Act) -> None:
        """Happens at `when`, or now if that is past."""
        self._number += 1
        heapq.heappush(self._later, (when, self._number, act))

    def after(self, seconds: float, act: Act) -> None:
        """Happens in so many seconds."""
        self.at(self.now + seconds, act)

    def note(self, who: str, what: str) -> None:
        """One line of the history."""
        self.log.append((self.now, who, what))

    def chance(self, probability: float) -> bool:
        """True with that probability."""
        return probability > 0 and self.rng.random() < probability

    def run(self, until: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Lets everything happen up to `until`, or up to the first pause in which it is over."""
        while True:
            while self._soon:
                self._soon.popleft()()
            if not self._later or self._later[0][0] > until:
                self.now = until
                return
            if is_over():
                return
            when, _, act = heapq.heappop(self._later)
            self.now = max(self.now, when)
            act()
