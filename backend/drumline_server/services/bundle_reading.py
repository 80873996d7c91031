"""Child processes with limits that read foreign programs, a few at a time; and what they are asked of stored ones.

Here too how contents are read from requests, piece by piece.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from drumline import bundle
from drumline.contracts import api
from drumline.contracts.problems import ProblemCode
from drumline.errors import BundleError
from drumline_server.base.callers import Turns, busy
from drumline_server.base.errors import DrumlineError, InvalidRequestError, NotFoundError, TooMuchToReadError
from drumline_server.services import bundle_child
from drumline_server.services.bundle_child import Comparison
from drumline_server.storage.blobs import BlobStore, Unfinished

CHILDREN = 2
"""Programs that are read at the same time, of different callers."""
MOST_WAITING = 8
"""Tasks of one caller that are read or wait: nobody else is refused for them."""
CPU_S = 5.0
"""Processor time for one task; a legitimate megabyte of source takes about two seconds."""
DEADLINE_S = 25.0
"""For one task on a busy machine."""
_LINE_BYTES = 32 * 2**20
"""Of one answer: 4 MiB of text with every character escaped."""
_INHERITED = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "LC_ALL")
"""Of the environment: what the interpreter needs to start, and none of the server's secrets."""


class _GoneError(Exception):
    """The child ended in the middle of a task."""


@dataclass(frozen=True, slots=True)
class Task:
    """Something to read: `name` is a task of the child."""

    name: str
    paths: tuple[Path, ...]
    sides: tuple[str, ...] = ()


@dataclass(slots=True)
class _Child:
    """A process that is started when it is needed, and again after it ended."""

    process: asyncio.subprocess.Process | None = None
    place: str = ""
    """The file that it reads."""

    async def ask(self, line: bytes) -> tuple[str, bytes]:
        """The kind and the payload of the answer. Raises _GoneError."""
        process = await self._alive()
        assert process.stdin is not None
        assert process.stdout is not None
        self.place = ""
        with suppress(ConnectionError):
            process.stdin.write(line)
            await process.stdin.drain()
        while True:
            answer = await process.stdout.readline()
            if not answer.endswith(b"\n"):
                raise _GoneError
            kind, _, payload = answer[:-1].partition(b" ")
            if kind != b"at":
                return kind.decode(), payload
            self.place = str(json.loads(payload))

    async def end(self) -> int:
        """Kills what is left of it; its exit status."""
        process, self.process = self.process, None
        if process is None:
            return 0
        with suppress(ProcessLookupError):
            process.kill()
        return await process.wait()

    async def wait_exit(self) -> int:
        """The exit status of a process whose output ended."""
        process, self.process = self.process, None
        return 0 if process is None else await process.wait()

    async def _alive(self) -> asyncio.subprocess.Process:
        if self.process is not None and (self.process.returncode is not None or _at_eof(self.process)):
            await self.end()
        if self.process is None:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", bundle_child.__name__),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_LINE_BYTES,
                env={name: os.environ[name] for name in _INHERITED if name in os.environ},
                start_new_session=True,
            )
        return self.process


class Reading:
    """Reads programs for callers, each of which has a name. `close` ends the processes."""

    def __init__(self, *, children: int = CHILDREN, cpu_s: float = CPU_S, deadline_s: float = DEADLINE_S) -> None:
        self._free = [_Child() for _ in range(children)]
        self._children = tuple(self._free)
        self.turns = Turns(children, MOST_WAITING, "programs of this token wait to be read")
        self._cpu_s = cpu_s
        self._deadline_s = deadline_s

    async def read(self, task: Task, caller: str) -> bytes:
        """The JSON that the task gives.

        Raises DrumlineError: what the child refuses; TooMuchToReadError; rate_limited where too many of this caller
        wait, or where the machine was too busy.
        """
        async with self.turns.turn(caller):
            return await self._ask(task)

    async def close(self) -> None:
        """Ends the processes, whatever they read."""
        for each in self._children:
            await each.end()

    async def _ask(self, task: Task) -> bytes:
        chosen = self._free.pop()
        answered = False
        try:
            async with asyncio.timeout(self._deadline_s):
                kind, payload = await self._answer(chosen, self._line(task))
            answered = True
        except TimeoutError:
            raise busy(f"The program could not be read within {self._deadline_s:g} s.") from None
        finally:
            if not answered:  # also where the caller went away: what it asked for is not worth finishing
                await asyncio.shield(chosen.end())
            self._free.append(chosen)
        if kind == "memory":
            await chosen.end()
            raise _too_much_memory(chosen.place)
        if kind == "refused":
            raise _refusal(json.loads(payload))
        return payload

    async def _answer(self, chosen: _Child, line: bytes) -> tuple[str, bytes]:
        try:
            return await chosen.ask(line)
        except _GoneError:
            status = await chosen.wait_exit()
        if status == 0:  # it had grown large over the task before, and was about to end
            with suppress(_GoneError):
                return await chosen.ask(line)
        raise self._why_gone(chosen, status)

    def _why_gone(self, chosen: _Child, status: int) -> DrumlineError:
        if status == -signal.SIGXCPU:
            return TooMuchToReadError(chosen.place, f"{self._cpu_s:g} s of processor time")
        if status in (-signal.SIGSEGV, -signal.SIGABRT):  # out of memory, or of stack, in the middle of parsing
            return _too_much_memory(chosen.place)
        return busy("The process that reads programs ended.")

    def _line(self, task: Task) -> bytes:
        told: dict[str, Any] = {"name": task.name, "paths": [str(path) for path in task.paths], "sides": task.sides}
        return json.dumps({**told, "cpu_s": self._cpu_s}).encode() + b"\n"


def _at_eof(process: asyncio.subprocess.Process) -> bool:
    return process.stdout is None or process.stdout.at_eof()


def _too_much_memory(place: str) -> TooMuchToReadError:
    return TooMuchToReadError(place, f"{bundle_child.MEMORY_BYTES // 2**20} MiB of memory")


def _refusal(told: dict[str, Any]) -> DrumlineError:  # Any: JSON of the child
    context = {"rule": told["rule"], "entry": told["entry"]} if "rule" in told else None
    return DrumlineError(ProblemCode(told["code"]), told["message"], context=context)


async def read_source(blobs: BlobStore, reading: Reading, location: str, caller: str) -> bytes:
    """The text files of a stored bundle, up to 4 MiB in all: an `api.BundleSource` as JSON."""
    async with blobs.local(location) as path:
        return await reading.read(Task("source", (path,)), caller)


async def compare_bundles(
    blobs: BlobStore, reading: Reading, old: tuple[str, str], new: tuple[str, str], caller: str
) -> Comparison:
    """The files that differ from bundle `old` to `new`, each a (name for the diff, location); and how many in all."""
    if old[1] == new[1]:
        return Comparison(files=(), total=0)
    async with blobs.local(old[1]) as old_path, blobs.local(new[1]) as new_path:
        task = Task("compare", (old_path, new_path), (old[0], new[0]))
        return Comparison.model_validate_json(await reading.read(task, caller))


async def inspect(blobs: BlobStore, reading: Reading, digest: str, path: Path, caller: str) -> bytes:
    """What the program offers, as JSON: read once for each content, and refused once."""
    kept = await blobs.note(digest)
    if kept is None:
        try:
            kept = await reading.read(Task("inspect", (path,)), caller)
        except TooMuchToReadError as error:
            refusal = {"refused": error.detail, "hint": error.hint, "context": error.context}
            await blobs.keep_note(digest, json.dumps(refusal).encode())
            raise
        await blobs.keep_note(digest, kept)
    elif kept.startswith(b'{"refused"'):
        told = json.loads(kept)
        raise DrumlineError(ProblemCode.BAD_BUNDLE, told["refused"], hint=told["hint"], context=told["context"])
    return kept


def finish_file(file: BinaryIO, filename: str | None) -> str:
    """Makes a bundle of a single Python file; the digest of the whole."""
    if filename is not None:
        file.seek(0)
        try:
            packed = bundle.pack_source(filename, file.read())
        except BundleError as error:
            context = {"rule": error.code, "entry": error.entry}
            raise DrumlineError(ProblemCode.BAD_BUNDLE, f"Bad bundle: {error.message}.", context=context) from None
        file.seek(0)
        file.truncate()
        file.write(packed)
    file.flush()
    return bundle.digest(file)


@dataclass(frozen=True, slots=True)
class Piece:
    """A request body that holds the bytes of a content of `size_bytes` from `offset` on, as many as come."""

    sha256: str
    offset: int
    size_bytes: int
    chunks: AsyncIterator[bytes]


async def require_next(upload: Unfinished, piece: Piece) -> None:
    """Raises DrumlineError conflict where the piece does not begin where the last one ended."""
    received = upload.received_bytes
    if received > piece.size_bytes:  # only an address of the store takes more than was announced
        await upload.discard()
        received = 0
    if piece.offset != received:
        raise not_next(piece.offset, received)


def not_next(offset: int, received: int) -> DrumlineError:
    """The refusal of a piece that does not follow what has come."""
    return DrumlineError(
        ProblemCode.CONFLICT,
        f"The piece begins at byte {offset}; {received} have come.",
        hint=f"Send it from byte {received} on.",
        context={"received_bytes": received},
    )


async def add_piece(blobs: BlobStore, upload: Unfinished, piece: Piece) -> None:
    """Takes what comes. Raises InvalidRequestError for more than was announced; as BlobStore.require_room."""
    async for chunk in piece.chunks:
        if upload.received_bytes + len(chunk) > piece.size_bytes:
            raise InvalidRequestError("size", f"{piece.size_bytes} bytes were announced, and more came")
        blobs.require_room()
        upload.add(chunk)


async def address_of_piece(blobs: BlobStore, owner: str, sha256: str, offset: int, size_bytes: int) -> api.PieceAddress:
    """Where the piece from `offset` on is to be sent. Raises NotFoundError where the store has no addresses."""
    address = await blobs.piece_address(owner, sha256, offset, size_bytes)
    if address is None:
        raise NotFoundError("address", sha256, detail="This server takes pieces itself.")
    return api.PieceAddress(
        url=address.url, headers=address.headers, size_bytes=address.size_bytes, expires_at=address.expires_at
    )
