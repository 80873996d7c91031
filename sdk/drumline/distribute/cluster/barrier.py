"""A barrier with a deadline of our own, before JAX's service: its client ends the process where one stays away."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import time
from dataclasses import dataclass

from drumline.distribute.cluster.gang import Gang, checked_address
from drumline.distribute.errors import ClusterError

#: Seconds between two attempts to reach process 0, and between two lists of those that are absent.
_RETRY_S = 0.2
_TELL_S = 1.0
_CONNECT_S = 5.0
#: A line is a word and eight numbers at most.
_MOST_BYTES = 256
_MOST_NAMED = 8
_ALL_HERE = "go"
_GAVE_UP = "failed"


def wait_for_all(gang: Gang, timeout_s: float) -> None:
    """Returns when all processes of a gang of several called it; ClusterError names who is absent after ``timeout_s``.

    Process 0 listens where JAX's service will (JAX_COORDINATOR_BIND_ADDRESS, else all addresses), and has left that
    port when it returns.
    """
    deadline = time.monotonic() + timeout_s
    if gang.process_id == 0:
        _Host(gang, deadline, timeout_s).wait()
    else:
        _Guest(gang, deadline, timeout_s).wait()


def _not_met(gang: Gang, why: str) -> ClusterError:
    return ClusterError(
        f"process {gang.process_id} of {gang.num_processes} did not meet the others at {gang.coordinator_address}: "
        f"{why}"
    )


@dataclass
class _Member:
    """A connection to process 0; ``process_id`` is None until it has said which it is."""

    connection: socket.socket
    heard: bytes = b""
    process_id: int | None = None


class _Host:
    """Process 0: counts the others."""

    def __init__(self, gang: Gang, deadline: float, timeout_s: float) -> None:
        self._gang, self._deadline, self._timeout_s = gang, deadline, timeout_s
        self._present: dict[int, _Member] = {}

    def wait(self) -> None:
        with contextlib.ExitStack() as sockets, selectors.DefaultSelector() as selector:
            listener = sockets.enter_context(self._listen())
            selector.register(listener, selectors.EVENT_READ)
            try:
                self._gather(listener, selector)
            except OSError as error:  # no room for another connection
                raise _not_met(self._gang, str(error)) from None
            finally:
                # The port has to be free before anybody is told to go on.
                listener.close()
                is_complete = not self._absent()
                for member in [key.data for key in list(selector.get_map().values()) if key.data is not None]:
                    _say(member, _ALL_HERE if is_complete else _GAVE_UP)
                    member.connection.close()
        if not is_complete:
            raise _not_met(
                self._gang, f"after {self._timeout_s:g} s {_named(self._absent())} had not called dist.initialize()"
            )

    def _listen(self) -> socket.socket:
        address = os.environ.get("JAX_COORDINATOR_BIND_ADDRESS") or self._gang.coordinator_address
        host, _, port = checked_address(address).rpartition(":")
        host = host.strip("[]") if "JAX_COORDINATOR_BIND_ADDRESS" in os.environ else ""
        try:
            if socket.has_dualstack_ipv6() and host in ("", "::"):
                return socket.create_server(
                    ("", int(port)), family=socket.AF_INET6, dualstack_ipv6=True, reuse_port=True, backlog=4096
                )
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            return socket.create_server((host, int(port)), family=family, reuse_port=True, backlog=4096)
        except OSError as error:
            raise _not_met(self._gang, f"port {port} can't be listened at: {error.strerror or error}") from None

    def _gather(self, listener: socket.socket, selector: selectors.BaseSelector) -> None:
        tell_at = 0.0
        while self._absent() and (now := time.monotonic()) < self._deadline:
            if now >= tell_at:
                tell_at = now + _TELL_S
                for member in self._present.values():
                    _say(member, f"absent {_named(self._absent())}")
            for key, _ in selector.select(min(tell_at, self._deadline) - now):
                if key.data is None:
                    connection, _ = listener.accept()
                    connection.setblocking(False)
                    selector.register(connection, selectors.EVENT_READ, _Member(connection))
                elif not self._hear(key.data):
                    selector.unregister(key.fileobj)
                    key.data.connection.close()

    def _hear(self, member: _Member) -> bool:
        """Takes in what a connection says; False where it is over or is no member's."""
        with contextlib.suppress(OSError):
            piece = member.connection.recv(_MOST_BYTES)
            member.heard += piece
            if piece and member.process_id is None and len(member.heard) <= _MOST_BYTES:
                return b"\n" not in member.heard or self._admit(member)
        if member.process_id is not None:
            del self._present[member.process_id]
        return False

    def _admit(self, member: _Member) -> bool:
        words = member.heard.decode("ascii", "replace").split()
        if len(words) != 3 or words[0] != "join" or not all(word.isdecimal() for word in words[1:]):
            return False
        process_id, count = int(words[1]), int(words[2])
        if count != self._gang.num_processes or not 0 < process_id < count:
            _say(member, f"refused process 0 has a gang of {self._gang.num_processes}")
            return False
        if process_id in self._present:
            _say(member, f"refused another process is process {process_id} already")
            return False
        member.process_id = process_id
        self._present[process_id] = member
        return True

    def _absent(self) -> list[int]:
        """At most one more than are named, in order."""
        if len(self._present) == self._gang.num_processes - 1:
            return []
        absent = (rank for rank in range(1, self._gang.num_processes) if rank not in self._present)
        return [rank for rank, _ in zip(absent, range(_MOST_NAMED + 1), strict=False)]


class _Guest:
    """Another process: tells process 0 that it is there, again and again until it is answered."""

    def __init__(self, gang: Gang, deadline: float, timeout_s: float) -> None:
        self._gang, self._deadline, self._timeout_s = gang, deadline, timeout_s
        self._absent = "process 0"

    def wait(self) -> None:
        host, _, port = str(self._gang.coordinator_address).rpartition(":")
        reason = ""
        while (left := self._deadline - time.monotonic()) > 0:
            try:
                with socket.create_connection((host.strip("[]"), int(port)), min(left, _CONNECT_S)) as connection:
                    if self._is_let_in(connection):
                        return
            except (OSError, UnicodeError) as error:
                reason = f" ({getattr(error, 'strerror', None) or error})"
                self._absent = "process 0"
            time.sleep(max(0.0, min(_RETRY_S, self._deadline - time.monotonic())))
        reason = reason if self._absent == "process 0" else ""
        raise _not_met(
            self._gang, f"after {self._timeout_s:g} s {self._absent} had not called dist.initialize(){reason}"
        )

    def _is_let_in(self, connection: socket.socket) -> bool:
        """Whether all are there; False where the connection ended before. ClusterError where it is turned away."""
        connection.sendall(f"join {self._gang.process_id} {self._gang.num_processes}\n".encode())
        heard = b""
        while (left := self._deadline - time.monotonic()) > 0:
            connection.settimeout(left)
            piece = connection.recv(_MOST_BYTES)
            *lines, heard = (heard + piece).split(b"\n")
            for line in lines:
                word, _, rest = line.decode("ascii", "replace").partition(" ")
                if word == _ALL_HERE:
                    return True
                if word == "absent":
                    self._absent = rest
                elif word == "refused":
                    raise _not_met(self._gang, rest)
                elif word == _GAVE_UP:
                    raise _not_met(self._gang, f"process 0 gave up; {self._absent} had not called dist.initialize()")
            if not piece or len(heard) > _MOST_BYTES:
                return False
        return False


def _say(member: _Member, line: str) -> None:
    # One that is gone is heard of by its connection's end.
    with contextlib.suppress(OSError):
        member.connection.send(f"{line}\n".encode())


def _named(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:_MOST_NAMED])) + (", ..." if len(ranks) > _MOST_NAMED else "")
    return f"{'process' if len(ranks) == 1 else 'processes'} {shown}"
