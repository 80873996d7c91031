"""Sends what a member keeps for its run: content by content, in pieces that continue where the last one ended.

What lies in the member's directory says what there is to send, and the server what of it it has: an agent that restarts
needs to know nothing else. A content that is stored, or is not wanted any more, is deleted here.
"""

import asyncio
import logging
import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from drumline.contracts.artifacts import ArtifactUpload
from drumline.contracts.problems import ProblemCode
from drumline.contracts.states import ArtifactState
from drumline_worker.agent.agent_context import AgentContext
from drumline_worker.agent.api import Backoff, RefusedError, UnreachableError
from drumline_worker.agent.telemetry_sender import TelemetrySender
from drumline_worker.host.rundir import RunDirectory

_LOG = logging.getLogger(__name__)
PIECE_BYTES = 8 * 2**20
"""Of a content, in memory and in one request."""
_CONTENT = re.compile(r"[0-9a-f]{64}")


class ArtifactSender:
    """`run` returns once the member's telemetry is sent, and with it all that it told to have kept, or is pointless."""

    def __init__(self, context: AgentContext, member: str, directory: RunDirectory, telemetry: TelemetrySender) -> None:
        self._api = context.api
        self._registration = context.registration
        self._turns = context.uploading
        self._member = member
        self._directory = directory.artifacts
        self._telemetry = telemetry
        self._backoff = Backoff()

    async def run(self) -> None:
        """Sends what there is, and what comes."""
        is_over = False
        while not is_over:
            is_over = self._telemetry.done.is_set()  # before it is looked: what was told of lies there by now
            for content in self._contents():
                await self._send(content, is_over)
            if not is_over:
                await self._telemetry.news.wait()
                self._telemetry.news.clear()
        if self._directory.exists():
            await self._end()

    def _contents(self) -> list[Path]:
        with suppress(FileNotFoundError):
            return sorted(each for each in self._directory.iterdir() if _CONTENT.fullmatch(each.name))
        return []

    async def _send(self, content: Path, is_over: bool) -> None:
        """Sends one content, as long as it is wanted. One that the server does not know of yet waits for telemetry."""
        upload: ArtifactUpload | None = None
        while True:
            try:
                async with self._turns:
                    upload = await self._advance(content, upload)
            except UnreachableError as error:
                await asyncio.sleep(error.retry_after_s or self._backoff.next_s())
                upload = None
            except RefusedError as error:
                if await self._is_unwanted(error):
                    break
                upload = None
            except OSError as error:
                _LOG.warning("%s of %s can't be sent: %s", content.name, self._member, error)
                break
            else:
                self._backoff.reset()
                if upload.state is None and not is_over:
                    return
                if upload.state != ArtifactState.ARRIVING:
                    break
        with suppress(OSError):
            content.unlink()

    async def _advance(self, content: Path, upload: ArtifactUpload | None) -> ArtifactUpload:
        """One step: asks how far it is, or sends a piece. Raises OSError where the file is not as it was."""
        sha256 = f"sha256:{content.name}"
        if upload is None:
            return await self._api.find_artifact(self._member, sha256)
        begin, rest = upload.received_bytes, upload.size_bytes - upload.received_bytes
        if upload.by_address and rest:
            address = await self._api.find_artifact_address(self._member, sha256, begin)
            piece = await asyncio.to_thread(_read, content, begin, min(address.size_bytes, rest))
            await self._api.put_elsewhere(address.url, piece, address.headers)
            return upload.model_copy(update={"received_bytes": begin + len(piece)})
        piece = await asyncio.to_thread(_read, content, begin, min(PIECE_BYTES, rest))
        return await self._api.send_artifact(self._member, sha256, begin, piece)

    async def _is_unwanted(self, error: RefusedError) -> bool:
        """Whether the content need not be sent any more; else this waits a while."""
        if error.member_is_gone:
            return True
        if error.problem.code != ProblemCode.CONFLICT and error.worker_is_unknown:
            self._registration.register_again()
        elif error.problem.code != ProblemCode.CONFLICT:
            _LOG.warning("the server refuses an artifact of %s: %s", self._member, error)
        await asyncio.sleep(self._backoff.next_s())
        return False

    async def _end(self) -> None:
        """What the server still waits for is not here: it hears so."""
        while True:
            try:
                return await self._api.end_artifacts(self._member)
            except UnreachableError as error:
                await asyncio.sleep(error.retry_after_s or self._backoff.next_s())
            except RefusedError as error:
                if await self._is_unwanted(error):
                    return None


def _read(content: Path, begin: int, size: int) -> bytes:
    """So many bytes of the file; no link is followed, and nothing else than a plain file read.

    Raises OSError where it has fewer: its program, which runs as the same user, has changed it.
    """
    descriptor = os.open(content, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("it is no plain file any more")
        piece = os.pread(descriptor, size, begin)
    finally:
        os.close(descriptor)
    if len(piece) < size:
        raise OSError(f"it ends at byte {begin + len(piece)}, before its end")
    return piece
