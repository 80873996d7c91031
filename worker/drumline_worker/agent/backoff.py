"""Waiting between attempts."""

import random

FIRST_S = 0.2
CAP_S = 10.0


class Backoff:
    """Doubles from 0.2 s up to 10 s, with jitter, so that many workers do not return all at once."""

    def __init__(self, first_s: float = FIRST_S, cap_s: float = CAP_S) -> None:
        self._first_s = first_s
        self._cap_s = cap_s
        self._next_s = first_s

    def reset(self) -> None:
        """It worked: the next failure waits shortly again."""
        self._next_s = self._first_s

    def next_s(self) -> float:
        """Seconds to wait now."""
        wait_s = self._next_s
        self._next_s = min(2 * self._next_s, self._cap_s)
        return wait_s * random.uniform(0.8, 1.2)
