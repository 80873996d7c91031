"""One agent on the shim's socket: its wishes come in, news of the spool goes out."""

import os
import socket
import struct

from pydantic import ValidationError

from drumline.contracts.base import Contract
from drumline_worker.host.framing import Decoder, FramingError, encode_payload
from drumline_worker.host.processes import descendants
from drumline_worker.host.shim_messages import FromAgent, Spooled, Wish

_PEER = struct.Struct("3i")
_FINAL_S = 2.0


class AgentLink:
    """A connection that never blocks the shim: what can't be sent now is replaced by newer news."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket = connection
        self._decoder = Decoder()
        self._unsent = b""
        self._told: Spooled | None = None

    def receive(self) -> list[Wish] | None:
        """Messages that arrived; None when the agent hung up or talks nonsense."""
        try:
            raw = self.socket.recv(65_536)
            return [FromAgent.validate_json(payload) for payload in self._decoder.feed(raw)] if raw else None
        except BlockingIOError:
            return []
        except (OSError, FramingError, ValidationError):
            return None

    def tell(self, news: Spooled) -> bool:
        """Sends `news` unless the agent knows it or is still swallowing older news; False when it hung up."""
        if not self._unsent:
            if news == self._told:
                return True
            self._told = news
            self._unsent = _frames(news)
        try:
            self._unsent = self._unsent[self.socket.send(self._unsent) :]
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True

    def queue(self, message: Contract) -> None:
        """Sends it with what is told next; unlike news it is not replaced by what is newer."""
        self._unsent += _frames(message)

    def send_final(self, message: Contract) -> None:
        """Sends the last message, waiting for a slow agent a little: `end.json` tells it as well."""
        try:
            self.socket.settimeout(_FINAL_S)  # blocks the shim, which has nothing else left to do
            self.socket.sendall(self._unsent + _frames(message))
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            return


def accept(listener: socket.socket) -> AgentLink | None:
    """The next agent; None for another user and for the program itself, which must not steer its shim."""
    connection, _ = listener.accept()
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    pid, uid, _ = _PEER.unpack(peer)
    if uid not in (os.getuid(), 0) or pid in descendants(os.getpid()):
        connection.close()
        return None
    return AgentLink(connection)


def _frames(message: Contract) -> bytes:
    return encode_payload(message.model_dump_json().encode())
