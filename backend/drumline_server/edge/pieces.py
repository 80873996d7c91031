"""Answers whose JSON is made piece by piece: a long list as one text would hold the interpreter while it is made."""

import asyncio
from collections.abc import AsyncIterator, Mapping

from fastapi.responses import StreamingResponse
from pydantic import BaseModel

_AT_ONCE_BYTES = 64 * 1024


def in_pieces(answer: BaseModel, field: str) -> StreamingResponse:
    """The JSON of `answer`; the models in its list `field` are written one after the other."""
    return StreamingResponse(_pieces(answer, field), media_type="application/json")


def cut(content: bytes, media_type: str, headers: Mapping[str, str] | None = None) -> StreamingResponse:
    """An answer that goes out as its reader takes it, and counts as under way until then.

    One that is sent whole counts as sent while all of it waits in the connection.
    """
    return StreamingResponse(_cut(content), media_type=media_type, headers=headers)


async def _cut(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), _AT_ONCE_BYTES):
        yield content[start : start + _AT_ONCE_BYTES]


async def _pieces(answer: BaseModel, field: str) -> AsyncIterator[bytes]:
    head = answer.model_dump_json(exclude={field}).encode()
    piece = bytearray(head[:-1] + (b"," if len(head) > 2 else b"") + b'"%s":[' % field.encode())
    for place, item in enumerate(getattr(answer, field)):
        piece += (b"," if place else b"") + item.model_dump_json().encode()
        if len(piece) > _AT_ONCE_BYTES:
            yield bytes(piece)
            piece.clear()
            await asyncio.sleep(0)
    yield bytes(piece + b"]}")
