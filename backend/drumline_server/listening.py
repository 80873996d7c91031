"""The socket on which the API is served. Light: `drumline up` binds it before the API's process has started."""

import socket

BACKLOG = 512


class ListenError(Exception):
    """The address cannot be used; the message says why and what to do."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on `host` and `port`, on a free one for port 0. Raises ListenError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ListenError(
            f"Port {port} of {host} cannot be used: {error.strerror}. Choose another with --port, or --port 0 for any."
        ) from error
    return listener


def address(listener: socket.socket) -> str:
    """The URL at which a listening socket is reached."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
