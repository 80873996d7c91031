"""Records by which paths of calls the functions of one checkout are entered, in whatever process imports this file.

`make house` copies it into an environment of its own with a `.pth` file that imports it, since the agent hands its
children no variable that it does not know. `house.json` beside the interpreter's prefix says where to; without that
file nothing is recorded.

Each process writes into a memory map of its own (a fork begins a new one), so that a killed process leaves what it
recorded, and one that may open no file can record. One byte that all processes share, `control`, says which recording
is on; 0 for none. Lines of the file: `r <recording>`, `c <code> <line> <qualified name>\t<file>`, and
`p <path> <parent> <code> <microseconds of the monotonic clock>`: a path is the functions of the checkout on the stack,
awaiting coroutines included, without the frames of libraries.

Code that an import runs is left out, and so are lambdas and generator expressions, which stand in their function.
"""

import json
import mmap
import os
import sys
import threading
import time
from types import CodeType, FrameType
from typing import Any

_SPACE_BYTES = 32 * 1024 * 1024
"""Sparse: a process takes what it writes."""
_IN_FUNCTION, _IMPORT, _ELSEWHERE = 1, 2, 0
_CO_OPTIMIZED = 1
_MONITORING: Any = getattr(sys, "monitoring", None)
"""Any: from Python 3.12 on; mypy checks for 3.11."""
TOOL = 4
"""None of the ids that the standard library names for debuggers, coverage, profilers and optimizers."""


class Recorder:
    """Of one process and its forks."""

    def __init__(self, folder: str, root: str) -> None:
        self._folder = folder
        self._root = root + os.sep
        with open(os.path.join(folder, "control"), "r+b") as file:
            self._control = mmap.mmap(file.fileno(), 1)
        self._kinds: dict[int, tuple[CodeType, int]] = {}
        self.begin_process()

    def begin_process(self) -> None:
        """A file of its own for this process: also what a fork does first."""
        self._lock = threading.RLock()
        self._recording = 0
        self._paths: dict[tuple[int, int], int] = {}
        self._codes: dict[int, int] = {}
        path = os.path.join(self._folder, f"{os.getpid()}-{time.monotonic_ns()}.paths")
        with open(path, "x+b") as file:
            file.truncate(_SPACE_BYTES)
            self._space = mmap.mmap(file.fileno(), _SPACE_BYTES)

    def enter(self, code: CodeType, _: int) -> object:
        """A function begins."""
        if self._kind(code) != _IN_FUNCTION:
            return _MONITORING.DISABLE if self._kind(code) == _ELSEWHERE else None
        recording = self._control[0]
        if recording:
            stack = self._stack(sys._getframe(1))
            if stack:
                with self._lock:
                    self._write_path(recording, stack)
        return None

    def _stack(self, frame: FrameType | None) -> list[CodeType]:
        """Innermost first; nothing below an import."""
        found: list[CodeType] = []
        while frame is not None:
            kind = self._kind(frame.f_code)
            if kind == _IN_FUNCTION:
                found.append(frame.f_code)
            elif (
                kind == _IMPORT and frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") != "__main__"
            ):
                return []
            frame = frame.f_back
        return found

    def _kind(self, code: CodeType) -> int:
        known = self._kinds.get(id(code))
        if known is None:
            known = self._kinds[id(code)] = (code, self._judge(code))  # holding the code keeps its id its own
        return known[1]

    def _judge(self, code: CodeType) -> int:
        if not code.co_filename.startswith(self._root) or "/site-packages/" in code.co_filename:
            return _ELSEWHERE
        if not code.co_flags & _CO_OPTIMIZED:
            return _IMPORT
        return _ELSEWHERE if code.co_name.startswith("<") else _IN_FUNCTION

    def _write_path(self, recording: int, stack: list[CodeType]) -> None:
        if recording != self._recording:
            self._recording = recording
            self._paths.clear()
            self._write(f"r {recording}")
        parent = 0
        for code in reversed(stack):
            key = (parent, id(code))
            path = self._paths.get(key)
            if path is None:
                path = len(self._paths) + 1
                self._write(f"p {path} {parent} {self._number(code)} {time.monotonic_ns() // 1000}")
                self._paths[key] = path
            parent = path

    def _number(self, code: CodeType) -> int:
        number = self._codes.get(id(code))
        if number is None:
            number = len(self._codes) + 1
            self._write(f"c {number} {code.co_firstlineno} {code.co_qualname}\t{code.co_filename}")
            self._codes[id(code)] = number
        return number

    def _write(self, line: str) -> None:
        raw = line.encode() + b"\n"
        if self._space.tell() + len(raw) < _SPACE_BYTES:
            self._space.write(raw)


def start(settings: str) -> None:
    """Reads the settings and switches the recorder on."""
    with open(settings) as file:
        read = json.load(file)
    recorder = Recorder(read["folder"], read["root"])
    os.register_at_fork(after_in_child=recorder.begin_process)
    _MONITORING.use_tool_id(TOOL, "house")
    _MONITORING.register_callback(TOOL, _MONITORING.events.PY_START, recorder.enter)
    _MONITORING.set_events(TOOL, _MONITORING.events.PY_START)


if os.path.exists(os.path.join(sys.prefix, "house.json")):
    start(os.path.join(sys.prefix, "house.json"))
