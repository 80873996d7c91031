"""A barrier with a deadline of our own, before JAX's service: its client ends the process where one stays away.

Here the processes also agree on what must be the same in all of them. JAX's service could not tell: its protocol is
another one in other versions.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import selectors
import socket
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from drumline.distribute.cluster.gang import Gang, check_address
from drumline.distribute.errors import ClusterError

#: Seconds between two attempts to reach process 0.
_RETRY_S = 0.2
#: Seconds between two lists of those that are absent; after a change sooner, by so much for each process to tell.
_TELL_S = 1.0
_TELL_CHANGE_S = 0.1
_TELL_S_A_PROCESS = 0.001
_CONNECT_S = 5.0
#: A line is a word and eight numbers, facts or differences at most.
_MOST_BYTES = 4096
_MOST_NAMED = 8
_MOST_FACTS = 8
_FACT_CHARS = 40
_ALL_HERE = "go"
_GAVE_UP = "failed"
_DIFFER = "differ"
_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Difference:
    """A process of which a fact is not what it is of the others: ``name`` such as "jax", and both values."""

    process_id: int
    name: str
    value: str
    usual: str


class NotMetError(ClusterError):
    """The processes did not meet. ``absent``: those that did not come; ``differences``: what was not the same."""

    def __init__(self, message: str, absent: tuple[int, ...] = (), differences: tuple[Difference, ...] = ()) -> None:
        super().__init__(message)
        self.absent = absent
        self.differences = differences


def wait_for_all(gang: Gang, timeout_s: float, facts: Mapping[str, str] | None = None) -> str:
    """Returns when all processes of a gang of several called it with the same ``facts``, up to 8 of 40 characters.

    What it returns is the address at which this process is reached by the others: that of its way to process 0.
    Process 0 listens where JAX's service will (JAX_COORDINATOR_BIND_ADDRESS, else all addresses), and has left that
    port when it returns. Raises NotMetError, a ClusterError, which names who is absent after ``timeout_s``, or whose
    facts are others than those of most.
    """
    deadline = time.monotonic() + timeout_s
    known = {_plain(name): _plain(value) for name, value in list((facts or {}).items())[:_MOST_FACTS]}
    if gang.process_id == 0:
        return _Host(gang, deadline, timeout_s, known).wait()
    return _Guest(gang, deadline, timeout_s, known).wait()


def find_differences(facts: Mapping[int, Mapping[str, str]]) -> tuple[Difference, ...]:
    """Of each process that has a fact as most have not, by process; where as many have it so, as the first has it."""
    differences = []
    for name in dict.fromkeys(name for of_one in facts.values() for name in of_one):
        values = {process: facts[process].get(name, _UNKNOWN) for process in sorted(facts)}
        usual = Counter(values.values()).most_common(1)[0][0]  # of equally common ones the first
        differences += [Difference(process, name, value, usual) for process, value in values.items() if value != usual]
    return tuple(sorted(differences, key=lambda each: each.process_id)[:_MOST_NAMED])


def address_for_others(own: str, of_process_0: str) -> str:
    """``own`` unless only this machine knows it: then process 0 runs here too, and its address is ours."""
    return of_process_0 if _is_loopback(own) and _is_address(of_process_0) else own


def _is_address(text: str) -> bool:
    try:
        return bool(ipaddress.ip_address(text))
    except ValueError:
        return False


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _own_end(connection: socket.socket) -> str:
    """The address of this side; the listener's connections have IPv4 ones in IPv6's notation."""
    address = ipaddress.ip_address(connection.getsockname()[0])
    return str(getattr(address, "ipv4_mapped", None) or address)


def _not_met(
    gang: Gang, why: str, absent: tuple[int, ...] = (), differences: tuple[Difference, ...] = ()
) -> NotMetError:
    return NotMetError(
        f"process {gang.process_id} of {gang.num_processes} did not meet the others at {gang.coordinator_address}: "
        f"{why}",
        absent,
        differences,
    )


def _differ(gang: Gang, differences: tuple[Difference, ...]) -> NotMetError:
    told = "; ".join(
        f"process {each.process_id} has {each.name} {each.value}, most others {each.usual}" for each in differences
    )
    return _not_met(gang, f"{told}. All need the same", differences=differences)


@dataclass
class _Member:
    """A connection to process 0; ``process_id`` is None until it has said which it is."""

    connection: socket.socket
    heard: bytes = b""
    process_id: int | None = None
    facts: dict[str, str] = field(default_factory=dict)


class _Host:
    """Process 0: counts the others."""

    def __init__(self, gang: Gang, deadline: float, timeout_s: float, facts: dict[str, str]) -> None:
        self._gang, self._deadline, self._timeout_s, self._facts = gang, deadline, timeout_s, facts
        self._present: dict[int, _Member] = {}
        self._came: set[int] = set()
        self._tell_at = 0.0

    def wait(self) -> str:
        address = ""
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
                # Who gave up before has come: its limit began earlier.
                absent = self._absent() and (self._find_missing(self._came) or self._absent())
                differences = () if absent else self._differences()
                address = self._own_address()
                verdict = self._verdict(absent, differences, address)
                for member in [key.data for key in list(selector.get_map().values()) if key.data is not None]:
                    _say(member, verdict)
                    member.connection.close()
        if absent:
            why = f"after {self._timeout_s:g} s {_name_processes(absent)} had not called dist.initialize()"
            raise _not_met(self._gang, why, tuple(absent))
        if differences:
            raise _differ(self._gang, differences)
        return address

    def _own_address(self) -> str:
        """Where others reached it; those of this machine may have come by another way than those of others can."""
        reached = [_own_end(member.connection) for member in self._present.values()]
        return next((address for address in reached if not _is_loopback(address)), reached[0] if reached else "")

    def _differences(self) -> tuple[Difference, ...]:
        return find_differences({0: self._facts} | {rank: member.facts for rank, member in self._present.items()})

    def _verdict(self, absent: list[int], differences: tuple[Difference, ...], address: str) -> str:
        if absent:
            return _GAVE_UP
        told = [[each.process_id, each.name, each.value, each.usual] for each in differences]
        return f"{_DIFFER} {json.dumps(told)}" if told else f"{_ALL_HERE} {address}"

    def _listen(self) -> socket.socket:
        address = os.environ.get("JAX_COORDINATOR_BIND_ADDRESS") or self._gang.coordinator_address
        host, _, port = check_address(address).rpartition(":")
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
        while self._absent() and (now := time.monotonic()) < self._deadline:
            if now >= self._tell_at:
                self._tell_at = now + _TELL_S
                for member in self._present.values():
                    _say(member, f"absent {_name_processes(self._absent())}")
            for key, _ in selector.select(min(self._tell_at, self._deadline) - now):
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
        words = member.heard.decode("ascii", "replace").strip().split(" ", 3)
        if len(words) < 3 or words[0] != "join" or not all(word.isdecimal() for word in words[1:3]):
            return False
        process_id, count = int(words[1]), int(words[2])
        if count != self._gang.num_processes or not 0 < process_id < count:
            _say(member, f"refused process 0 has a gang of {self._gang.num_processes}")
            return False
        if process_id in self._present:
            _say(member, f"refused another process is process {process_id} already")
            return False
        member.process_id, member.facts = process_id, _parse_facts(words[3] if len(words) > 3 else "{}")
        self._present[process_id] = member
        self._came.add(process_id)
        soon = time.monotonic() + _TELL_CHANGE_S + _TELL_S_A_PROCESS * len(self._present)
        self._tell_at = min(self._tell_at, soon)
        return True

    def _absent(self) -> list[int]:
        return self._find_missing(self._present)

    def _find_missing(self, there: Collection[int]) -> list[int]:
        """Who is not among them: at most one more than are named, in order."""
        if len(there) == self._gang.num_processes - 1:
            return []
        missing = (rank for rank in range(1, self._gang.num_processes) if rank not in there)
        return [rank for rank, _ in zip(missing, range(_MOST_NAMED + 1), strict=False)]


class _Guest:
    """Another process: tells process 0 that it is there, again and again until it is answered."""

    def __init__(self, gang: Gang, deadline: float, timeout_s: float, facts: dict[str, str]) -> None:
        self._gang, self._deadline, self._timeout_s, self._facts = gang, deadline, timeout_s, facts
        self._absent = "process 0"
        self._address = ""

    def wait(self) -> str:
        host, _, port = str(self._gang.coordinator_address).rpartition(":")
        reason = ""
        while (left := self._deadline - time.monotonic()) > 0:
            try:
                with socket.create_connection((host.strip("[]"), int(port)), min(left, _CONNECT_S)) as connection:
                    if self._is_let_in(connection):
                        return self._address
            except (OSError, UnicodeError) as error:
                reason = f" ({getattr(error, 'strerror', None) or error})"
                self._absent = "process 0"
            time.sleep(max(0.0, min(_RETRY_S, self._deadline - time.monotonic())))
        reason = reason if self._absent == "process 0" else ""
        why = f"after {self._timeout_s:g} s {self._absent} had not called dist.initialize(){reason}"
        raise _not_met(self._gang, why, _numbers(self._absent))

    def _is_let_in(self, connection: socket.socket) -> bool:
        """Whether all are there; False where the connection ended before. ClusterError where it is turned away."""
        joining = f"join {self._gang.process_id} {self._gang.num_processes} {json.dumps(self._facts)}\n"
        connection.sendall(joining.encode())
        heard = b""
        while (left := self._deadline - time.monotonic()) > 0:
            connection.settimeout(left)
            try:
                piece = connection.recv(_MOST_BYTES)
            except TimeoutError:
                return False  # absent is whom process 0 named last; itself where it named nobody
            *lines, heard = (heard + piece).split(b"\n")
            for line in lines:
                word, _, rest = line.decode("ascii", "replace").partition(" ")
                if word == _ALL_HERE:
                    self._address = address_for_others(_own_end(connection), rest)
                    return True
                if word == "absent":
                    self._absent = rest
                elif word == "refused":
                    raise _not_met(self._gang, rest)
                elif word == _DIFFER:
                    raise _differ(self._gang, _parse_differences(rest))
                elif word == _GAVE_UP:
                    why = f"process 0 gave up; {self._absent} had not called dist.initialize()"
                    raise _not_met(self._gang, why, _numbers(self._absent))
            if not piece or len(heard) > _MOST_BYTES:
                return False
        return False


def _say(member: _Member, line: str) -> None:
    # One that is gone is heard of by its connection's end.
    with contextlib.suppress(OSError):
        member.connection.send(f"{line}\n".encode())


def _name_processes(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:_MOST_NAMED])) + (", ..." if len(ranks) > _MOST_NAMED else "")
    return f"{'process' if len(ranks) == 1 else 'processes'} {shown}"


def _numbers(named: str) -> tuple[int, ...]:
    return tuple(int(word) for word in named.replace(",", " ").split() if word.isdecimal())


def _parse_facts(text: str) -> dict[str, str]:
    """What a process told; nothing where that is no JSON of ours, so that it differs from all that tell."""
    with contextlib.suppress(ValueError):
        told = json.loads(text)
        if isinstance(told, dict) and len(told) <= _MOST_FACTS:
            return {_plain(name): _plain(value) for name, value in told.items()}
    return {}


def _plain(value: object) -> str:
    """Anybody can reach the port, and what is told ends up in messages."""
    return str(value)[:_FACT_CHARS].encode("ascii", "replace").decode()


def _parse_differences(text: str) -> tuple[Difference, ...]:
    try:
        return tuple(
            Difference(int(rank), _plain(name), _plain(value), _plain(usual))
            for rank, name, value, usual in json.loads(text)
        )
    except (ValueError, TypeError):
        return ()
