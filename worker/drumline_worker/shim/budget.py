"""How much telemetry one member may make: a token bucket per kind of thing, on any steady clock."""


class Bucket:
    """Fills with `rate` per second up to `burst`."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._level = burst
        self._at: float | None = None

    def level(self, now: float) -> float:
        """What may be taken now."""
        if self._at is not None:
            self._level = min(self._burst, self._level + (now - self._at) * self._rate)
        self._at = now
        return self._level

    def take(self, amount: float, now: float) -> bool:
        """Takes `amount` if it is there."""
        if self.level(now) < amount:
            return False
        self._level -= amount
        return True

    def force(self, amount: float, now: float) -> None:
        """Takes `amount` even into debt: for what must not be dropped."""
        self.level(now)
        self._level -= amount
