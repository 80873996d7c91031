"""The process that reads foreign programs, so that the one that renews leases never does.

Parsing, inflating and comparing hold the interpreter for as long as the source likes: a megabyte of nested f-strings
takes minutes, one of `a;a;a` a gigabyte. Here each task has a limit of processor time and memory, and nothing else
runs. A task comes as a line of JSON; the answer is a line that begins with its kind. Nothing of a program is ever run.
"""

import json
import os
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from drumline import bundle, program
from drumline.contracts import api
from drumline.errors import BundleError, ProgramError
from drumline_server.bundles import comparing

MEMORY_BYTES = 768 * 2**20
"""Address space of the process. A legitimate megabyte of source takes some 200 MiB to parse."""
_KEPT_BYTES = 192 * 2**20
"""A process that grew larger than this ends after its answer; the next task gets a fresh one."""
_NICENESS = 5
_SOURCE_FILE_BYTES = 512 * 1024
"""Larger files, and those that are not text, are left out of a bundle's source view."""
_SOURCE_BYTES = 4 * 2**20
_BYTES_PER_RSS_UNIT = 1 if sys.platform == "darwin" else 1024

Task = dict[str, Any]  # Any: paths and names, as JSON
Tell = Callable[[str], None]


def main() -> None:
    """Answers tasks until the input ends."""
    _limit(resource.RLIMIT_AS, MEMORY_BYTES)
    _limit(resource.RLIMIT_CORE, 0)
    os.nice(_NICENESS)
    for line in sys.stdin.buffer:
        task = json.loads(line)
        _allow_processor_time(task["cpu_s"])
        _send(*_answer(task))
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _BYTES_PER_RSS_UNIT > _KEPT_BYTES:
            return


def _answer(task: Task) -> tuple[bytes, bytes]:
    try:
        return b"done", _TASKS[task["name"]](task)
    except BundleError as error:
        return b"refused", _json({"code": "bad_bundle", "message": f"Bad bundle: {error.message}.", "rule": error.code,
                                  "entry": error.entry})  # fmt: skip
    except ProgramError as error:
        return b"refused", _json({"code": error.code, "message": f"Bad program: {error.message}."})
    except (MemoryError, RecursionError):
        return b"memory", b""


def _inspect(task: Task) -> bytes:
    with Path(task["paths"][0]).open("rb") as file:
        entries = bundle.check(file)
        entrypoints = program.inspect(file, tell=_tell)
    files = sum(not entry.is_directory for entry in entries)
    return _json({"files": files, "entrypoints": [offered.model_dump(mode="json") for offered in entrypoints]})


def _source(task: Task) -> bytes:
    files: dict[str, str] = {}
    total = 0
    with Path(task["paths"][0]).open("rb") as file:
        for entry in bundle.check(file):
            if entry.is_directory or entry.stated_bytes > _SOURCE_FILE_BYTES:
                continue
            total += entry.stated_bytes
            if total > _SOURCE_BYTES:
                break
            text = _as_text(file, entry)
            if text is not None:
                files[entry.name] = text
    return api.BundleSource(files=files).model_dump_json().encode()


def _compare(task: Task) -> bytes:
    before, after = (Path(path) for path in task["paths"])
    with before.open("rb") as old, after.open("rb") as new:
        compared = comparing.compare(comparing.Side(task["sides"][0], old), comparing.Side(task["sides"][1], new))
    return compared.model_dump_json().encode()


_TASKS: dict[str, Callable[[Task], bytes]] = {"inspect": _inspect, "source": _source, "compare": _compare}


def _as_text(file: BinaryIO, entry: bundle.Entry) -> str | None:
    try:
        text = bundle.read(file, entry, _SOURCE_FILE_BYTES).decode()
    except UnicodeDecodeError:
        return None
    return None if "\x00" in text else text


def _tell(name: str) -> None:
    """Says which file is read next: the parent names it if this process does not live to."""
    _send(b"at", _json(name))


def _send(kind: bytes, payload: bytes) -> None:
    sys.stdout.buffer.write(kind + b" " + payload + b"\n")
    sys.stdout.buffer.flush()


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _allow_processor_time(seconds: float) -> None:
    """From now on; the kernel ends the process after that, whatever it is doing."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, int(usage.ru_utime + usage.ru_stime + seconds) + 1)


def _limit(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    soft = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with suppress(ValueError, OSError):  # macOS refuses some; the parent's own deadline holds there
        resource.setrlimit(which, (soft, hard))


if __name__ == "__main__":
    main()
