"""How often somebody may guess: failed logins per address and minute. A good credential is never held up by it."""

from collections import OrderedDict
from ipaddress import IPv6Address, ip_address

from drumline.contracts.problems import ProblemCode
from drumline_server.errors import DrumlineError

_MINUTE = 60_000_000
_MAX_ADDRESSES = 10_000


class LoginLimiter:
    """Counts failed logins of each address in a window of a minute; forgets the oldest addresses first."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._failures: OrderedDict[str, tuple[int, int]] = OrderedDict()

    @property
    def addresses(self) -> int:
        """How many addresses are remembered."""
        return len(self._failures)

    def check(self, address: str, now: int) -> None:
        """Raises DrumlineError(rate_limited) if the address failed too often in this minute."""
        began, failures = self._failures.get(_network(address), (now, 0))
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
        address = _network(address)
        began, failures = self._failures.pop(address, (now, 0))
        if now - began >= _MINUTE:
            began, failures = now, 0
        self._failures[address] = (began, failures + 1)
        if len(self._failures) > _MAX_ADDRESSES:
            self._failures.popitem(last=False)


def _network(address: str) -> str:
    """The address, of IPv6 its first 64 bits: whoever has one address there has all of them."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    return str(IPv6Address(int(parsed) >> 64 << 64)) if isinstance(parsed, IPv6Address) else address
