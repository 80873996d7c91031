"""Where the gangs of this host's rank 0 meet: an address that the others reach, and a port that nobody else gets."""

import socket
from urllib.parse import urlsplit


def own_address(server: str) -> str:
    """The address of this host as seen on its way to the server. Raises OSError when there is no way."""
    parts = urlsplit(server)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    family, _, _, _, address = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)  # sends nothing
        return str(probe.getsockname()[0])


class MeetingPlace:
    """A port kept by a socket that is bound and never listens; the runner's service binds it too (SO_REUSEPORT)."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind(("", 0))
        host = f"[{address}]" if ":" in address else address
        self.coordinator = f"{host}:{self._socket.getsockname()[1]}"

    def close(self) -> None:
        """The member is over."""
        self._socket.close()
