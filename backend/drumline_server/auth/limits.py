"""How often somebody may guess: failed logins per address and minute."""

from collections import OrderedDict

from drumline.contracts.problems import ProblemCode
from drumline_server.errors import DrumlineError

_MINUTE = 60_000_000
_MAX_ADDRESSES = 10_000


class LoginLimiter:
    """Counts failed logins of each address in a window of a minute; forgets the oldest addresses first."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._failures: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def check(self, address: str, now: int) -> None:
        """Raises DrumlineError(rate_limited) if the address failed too often in this minute."""
        began, failures = self._failures.get(address, (now, 0))
        if failures >= self._per_minute and now - began < _MINUTE:
            wait_s = (began + _MINUTE - now) // 1_000_000 + 1
            raise DrumlineError(
                ProblemCode.RATE_LIMITED,
                f"{failures} failed logins from {address} in a minute.",
                hint=f"Wait {wait_s} s.",
                context={"retry_after_s": wait_s},
            )

    def failed(self, address: str, now: int) -> None:
        """Counts a failed login."""
        began, failures = self._failures.pop(address, (now, 0))
        if now - began >= _MINUTE:
            began, failures = now, 0
        self._failures[address] = (began, failures + 1)
        if len(self._failures) > _MAX_ADDRESSES:
            self._failures.popitem(last=False)
