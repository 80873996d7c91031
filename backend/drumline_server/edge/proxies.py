"""Finds out whose request a proxy passes on. `X-Forwarded-For` is a list to which each proxy adds the address it saw.

So the entries are looked through from the right while they are proxies of ours; the first that is none is the client,
and what stands to the left of it the client may have written. `Forwarded`, `X-Forwarded-Proto` and `-Host` are never
read: the scheme is that of `DRUMLINE_BEHIND_PROXY`, and names are judged by `Host`.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from starlette.types import Scope

_MAX_ENTRIES = 32
"""Proxies in a row that are looked through."""
Address = IPv4Address | IPv6Address


class Proxies:
    """The proxies in front of this server, as addresses and networks."""

    def __init__(self, networks: Iterable[str]) -> None:
        self._networks = tuple(ip_network(network) for network in networks)

    def find_client(self, scope: Scope) -> None:
        """Puts the client's address in place of the proxy's, where a proxy of ours names one."""
        peer = _parse(scope["client"][0]) if scope.get("client") else None
        if peer is None or not self._is_ours(peer):
            return
        client = peer
        for entry in _last_entries(scope):
            address = _parse(entry)
            if address is None:
                break
            client = address
            if not self._is_ours(address):
                break
        scope["client"] = (str(client), 0)

    def _is_ours(self, address: Address) -> bool:
        return any(address.version == network.version and address in network for network in self._networks)


def _last_entries(scope: Scope) -> list[str]:
    """The entries of all `X-Forwarded-For` headers, the last one first."""
    lines = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
    entries = b",".join(lines).rsplit(b",", _MAX_ENTRIES)[-_MAX_ENTRIES:] if lines else []
    return [entry.strip().decode("latin-1") for entry in reversed(entries)]


def _parse(text: str) -> Address | None:
    """The address in `10.0.0.7`, `10.0.0.7:80`, `::1`, `[::1]` or `[::1]:80`; `None` for anything else."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
