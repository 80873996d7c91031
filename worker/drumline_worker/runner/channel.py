"""The runner's end of the socket to its shim, and the ticks that it sends there."""

import faulthandler
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import jax

import drumline.distribute as dist
from drumline_worker.host.messages import Decoder, encode, parse

_READ_BYTES = 4_096
TICK_S = 0.5
_KEPT = 256
"""Times between steps from which the usual one is taken."""
_PERCENTILE = 0.95
Activity = Literal["rendezvous", "own_code", "compiling", "in_step", "finishing"]
_JAX = os.path.dirname(os.path.abspath(jax.__file__)) + os.sep
_ENGINE = os.path.dirname(os.path.abspath(dist.__file__)) + os.sep
_COMPILER = tuple(
    os.path.join(_JAX, "_src", name) for name in ("compiler.py", "interpreters/mlir.py", "interpreters/partial_eval.py")
)
"""Whoever is on the stack of one of these traces, lowers or compiles a program."""


class Channel:
    """Sends messages whole, from any thread, and hears when the run is asked to stop.

    Asked for them, it writes the stacks of all threads to the descriptor `stacks`, stderr where none is named.
    """

    def __init__(self, link: socket.socket, stacks: int = 2) -> None:
        self._link = link
        self._stacks = stacks
        self._sending = threading.Lock()

    def send(self, kind: str, **fields: object) -> None:
        """Sends one message. Waits for the shim, which always reads."""
        self.send_fields({"kind": kind, **fields})

    def send_fields(self, fields: Mapping[str, object]) -> None:
        """As `send`, with the kind among the fields."""
        frames = encode(fields)
        with self._sending:  # frames of one message stay together: three threads send
            self._link.sendall(frames)

    def listen(self, on_stop: Callable[[], None], on_registered: Callable[[int], None]) -> None:
        """Hears the shim on a thread of its own: that the run is to stop; how many checkpoints the server knows; that
        stacks are wanted.
        """
        arguments = (on_stop, on_registered)
        threading.Thread(target=self._hear, args=arguments, name="drumline-news", daemon=True).start()

    def _hear(self, on_stop: Callable[[], None], on_registered: Callable[[int], None]) -> None:
        decoder = Decoder()
        while raw := self._link.recv(_READ_BYTES):
            for payload in decoder.feed(raw):
                message = parse(payload)
                if message["op"] == "stop":
                    on_stop()
                elif message["op"] == "stacks":  # while this thread has the interpreter, no other runs on
                    faulthandler.dump_traceback(self._stacks, all_threads=True)
                else:
                    on_registered(message["checkpoints"])


class Ticker:
    """Counts how often the program comes further; its thread looks what the main thread does and tells both."""

    def __init__(self, channel: Channel, activity: Activity) -> None:
        self._channel = channel
        self._memory: Callable[[], Sequence[Mapping[str, object]]] = tuple
        self._phase: Activity = activity
        self._in_step = False
        self._advances = 0
        self._advances_told = 0
        self._collectives = 0
        self._waits = 0
        self._advanced_at: float | None = None
        self._times: deque[float] = deque(maxlen=_KEPT)
        self._stacks = Stacks()

    def start(self) -> None:
        """Ticks from now on, as long as the process lives."""
        threading.Thread(target=self._tick_forever, name="drumline-tick", daemon=True).start()

    def enter(self, phase: Literal["own_code", "finishing"]) -> None:
        """The gang has met, or `main` has returned."""
        self._phase = phase

    def watch_memory(self, memory: Callable[[], Sequence[Mapping[str, object]]]) -> None:
        """Each tick tells from now on what `memory` says of the devices, as `drumline.contracts.usage.DeviceMemory`."""
        self._memory = memory

    def step_began(self) -> None:
        """`strategy.run` was called."""
        self._in_step = True

    def step_ended(self) -> None:
        """`strategy.run` returned."""
        self._in_step = False
        self.advance()

    def advance(self) -> None:
        """The program came further: a step returned, or it logged."""
        now = time.monotonic()
        if self._advanced_at is not None:
            self._times.append(now - self._advanced_at)
        self._advanced_at = now
        self._advances += 1
        if self._advances == 1:  # at once: other limits hold from here, and a call may keep the interpreter from us
            self._tell()

    def collective(self) -> None:
        """The engine left a collective."""
        self._collectives += 1

    def waits(self) -> None:
        """The program waits for other members, whose own watchdogs see to them."""
        self._waits += 1

    def _tick_forever(self) -> None:
        while self._tell():
            time.sleep(TICK_S)

    def _tell(self) -> bool:
        """False once the program has closed the socket: its shim judges by what it heard last."""
        try:
            self._channel.send(
                "tick",
                activity=self._activity(),
                advances=self._advances,
                collectives=self._collectives,
                waits=self._waits,
                usual_s=self._usual_s(),
                devices=self._memory(),
            )
        except OSError:
            return False
        return True

    def _activity(self) -> Activity:
        if self._phase != "own_code":
            return self._phase
        if self._advances != self._advances_told:  # it progresses: where it stands matters to nobody
            self._advances_told = self._advances
            return "in_step" if self._in_step else "own_code"
        self._stacks.look()
        if any(map(self._stacks.pass_through, _COMPILER)):
            return "compiling"
        main = threading.main_thread().ident or 0
        waits_for_devices = self._stacks.innermost_is_below(main, (_JAX, _ENGINE))
        return "in_step" if self._in_step or waits_for_devices else "own_code"

    def _usual_s(self) -> float | None:
        """What one step takes but for one in twenty."""
        times = sorted(self._times.copy())  # in one step of the interpreter: the main thread appends meanwhile
        return times[int(_PERCENTILE * (len(times) - 1))] if times else None


_IN = '  File "{}'


class Stacks:
    """One look at all Python threads: of the newest 100 of them the innermost 100 calls, as text.

    faulthandler reads them in C while none of them moves. A walk along `f_back` makes frame objects of threads that
    run on between two of its steps, and has ended a program of CPython 3.11.7 by SIGSEGV.
    """

    def __init__(self) -> None:
        self._file = os.memfd_create("drumline-stacks")
        self._told = ""

    def look(self) -> None:
        """Takes the place of the look before. Only one thread at a time may call it."""
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)
        faulthandler.dump_traceback(self._file, all_threads=True)
        self._told = os.pread(self._file, os.fstat(self._file).st_size, 0).decode("ascii", "replace")

    def pass_through(self, file: str) -> bool:
        """Whether any thread has a call into the Python file of that path on its stack."""
        return f'{_IN.format(_escape(file))}", line' in self._told

    def innermost_is_below(self, thread: int, directories: tuple[str, ...]) -> bool:
        """Whether the innermost call of the thread with that identity is one into a file of those directories."""
        _, _, stack = self._told.partition(f"hread 0x{thread:016x} ")
        innermost = stack.partition("\n")[2]
        return innermost.startswith(tuple(_IN.format(_escape(directory)) for directory in directories))


def _escape(path: str) -> str:
    """As faulthandler writes it."""
    return path.encode("ascii", "backslashreplace").decode()
