"""JSON in and out in pieces, so that none of it holds the interpreter for long."""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Any, get_args

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, RedirectResponse, StreamingResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope

from drumline.contracts.records import FRAMED, MAX_JSON_BYTES, RECORDS_MEDIA_TYPE, Framing
from drumline_server.storage.blobs import BlobStore

_PIECE_BYTES = 64 * 1024


def in_pieces(answer: BaseModel, field: str) -> StreamingResponse:
    """The JSON of `answer`; the models in its list `field` are written one after the other."""
    return StreamingResponse(_pieces(answer, field), media_type="application/json")


PIECE = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
"""Of a request whose body is a part of a content."""


def cut(content: bytes, media_type: str, headers: Mapping[str, str] | None = None) -> StreamingResponse:
    """An answer that goes out as its reader takes it, and counts as under way until then.

    One that is sent whole counts as sent while all of it waits in the connection.
    """
    return StreamingResponse(_cut(content), media_type=media_type, headers=headers)


async def send_content(
    blobs: BlobStore, location: str, media_type: str, *, direct: bool, name: str | None = None
) -> FileResponse | RedirectResponse:
    """What the store of content has there, as a file of that name; where it may, by the address of it in the store.

    It is no text of ours: it goes out as it is, and no browser is to run it.
    """
    address = await blobs.address(location) if direct else None
    if address is not None:
        return RedirectResponse(address.url, headers={"Cache-Control": "no-store"})
    held = AsyncExitStack()
    path = await held.enter_async_context(blobs.local(location))
    headers = {"Content-Security-Policy": "sandbox; default-src 'none'", "Content-Encoding": "identity"}
    sent = BackgroundTask(held.aclose)
    return FileResponse(path, filename=name, media_type=media_type, headers=headers, background=sent)


async def _cut(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), _PIECE_BYTES):
        yield content[start : start + _PIECE_BYTES]


async def _pieces(answer: BaseModel, field: str) -> AsyncIterator[bytes]:
    head = answer.model_dump_json(exclude={field}).encode()
    piece = bytearray(head[:-1] + (b"," if len(head) > 2 else b"") + b'"%s":[' % field.encode())
    for place, item in enumerate(getattr(answer, field)):
        piece += (b"," if place else b"") + item.model_dump_json().encode()
        if len(piece) > _PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
            await asyncio.sleep(0)
    yield bytes(piece + b"]}")


MAX_JSON_VALUES = 32_000
"""Of a body that is one JSON text: what the devices and members of the largest host take, twice over."""
_AT_ONCE_BYTES = 64 * 1024
"""Records that are read between two turns of the loop; one that is larger is read alone."""
_AT_ONCE_TOKENS = 4_000
"""Some 8 ms: a heartbeat needs several turns of the loop, and each waits for one of these."""
_AT_ONCE_OBJECTS = 1_000
"""Of a list inside of a record: some 5 ms."""
_REST_S = 0.001
"""Without a rest the threads of the database get the interpreter only every 5 ms, for one statement each."""
_SHOWN_ERRORS = 20
_ELSEWHERE = "put large values into the program's bundle"
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{},]', re.DOTALL)
"""Texts, and what stands between values. A text that does not end goes to the end, and is never looked at twice."""
_COLON = re.compile(rb"\s*:\s*")


Json = Any  # whatever JSON can hold


class JsonRoute(APIRoute):
    """A route whose JSON body is read in pieces."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler on a request that reads its body our way."""
        handle = super().get_route_handler()
        entries = _entries_of(self.body_field.field_info.annotation if self.body_field else None)

        async def handle_in_pieces(request: Request) -> Response:
            in_pieces = _JsonRequest(request.scope, request.receive, entries)
            try:
                return await handle(in_pieces)
            except HTTPException:
                if in_pieces.refusal is not None:
                    raise in_pieces.refusal from None
                raise

        return handle_in_pieces


class _Entries:
    """The list of a body that may come as records."""

    def __init__(self, model: type[BaseModel], framing: Framing) -> None:
        self.framing = framing
        entry = get_args(model.model_fields[framing.field].annotation)[0]
        self.adapter: TypeAdapter[Any] = TypeAdapter(entry)
        self.long_lists = {kind: lists for kind, of in _models_by_kind(entry).items() if (lists := _lists_of(of))}
        """Adapters of an entry's lists of objects, by its kind and the list's name."""


def _models_by_kind(entry: Any) -> dict[str, type[BaseModel]]:
    """The models of a union, by the `kind` that tells them apart; none for an entry of one model."""
    union = get_args(entry)
    return {model.model_fields["kind"].default: model for model in get_args(union[0])} if union else {}


def _lists_of(model: type[BaseModel]) -> dict[str, TypeAdapter[Any]]:
    inner = {name: (get_args(field.annotation) or (None,))[0] for name, field in model.model_fields.items()}
    return {
        name: TypeAdapter(list[each])  # type: ignore[valid-type]  # a model, known only now
        for name, each in inner.items()
        if isinstance(each, type) and issubclass(each, BaseModel)
    }


def _entries_of(model: object) -> _Entries | None:
    framing = FRAMED.get(model) if isinstance(model, type) else None
    return _Entries(model, framing) if framing and isinstance(model, type) else None


class _JsonRequest(Request):
    def __init__(self, scope: Scope, receive: Receive, entries: _Entries | None) -> None:
        self.refusal: RequestValidationError | None = None
        """Why the body was not read."""
        self._entries = entries
        media_type = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
        sent = media_type.partition(b";")[0].strip().lower()
        self._as_records = entries is not None and sent == RECORDS_MEDIA_TYPE.encode()
        if self._as_records:  # FastAPI parses what is called JSON, by `json()`
            headers = [pair for pair in scope["headers"] if pair[0] != b"content-type"]
            scope = {**scope, "headers": [*headers, (b"content-type", b"application/json")]}
        super().__init__(scope, receive)

    async def json(self) -> Json:
        try:
            return await self._read()
        except RequestValidationError as error:  # of which FastAPI would make a plain 400
            self.refusal = error
            raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY) from None

    async def _read(self) -> Json:
        body = await self.body()
        if self._entries is None:
            return await _read_small(body, MAX_JSON_BYTES)
        framing = self._entries.framing
        if self._as_records:
            head, records = _lines(body, framing)
        else:
            if len(body) > framing.json_bytes:
                raise _too_large(
                    f"The body is one JSON text of {len(body)} bytes; at most {framing.json_bytes}. "
                    f"Send {RECORDS_MEDIA_TYPE}: the object without {framing.field!r}, then an entry on each line."
                )
            head, records = await _split(_as_utf8(body), framing)
        outer = await _read_small(head, len(head))
        if not isinstance(outer, dict) or (not records and not self._as_records):
            return outer
        return {**outer, framing.field: await _read_records(records, self._entries)}


async def _read_small(body: bytes, most_bytes: int) -> Json:
    if len(body) > most_bytes:
        raise _too_large(f"The body has {len(body)} bytes; at most {most_bytes}.")
    await _require_few(body, MAX_JSON_VALUES)
    value = _parse(body)
    await asyncio.sleep(0)
    return value


def _parse(text: bytes, *place: str | int) -> Json:
    """Raises JSONDecodeError for what is no JSON, RequestValidationError for what Python cannot hold."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except UnicodeDecodeError as error:
        raise _refusal(f"is not {error.encoding} at byte {error.start}: {error.reason}", *place) from None
    except RecursionError:
        raise _refusal("is nested too deeply", *place) from None
    except ValueError:  # what is left: digits without end, whose reading takes time by the square of their number
        most = sys.get_int_max_str_digits()
        raise _refusal(f"holds a number of more than {most} digits; send it as text", *place) from None


async def _read_records(records: list[bytes], entries: _Entries) -> list[Any]:
    """The entries, validated. Raises RequestValidationError for the first few that are wrong."""
    framing = entries.framing
    found: list[Any] = []
    errors: list[Any] = []
    parts: dict[tuple[str, str], Any] = {}
    read = 0
    for place, record in enumerate(records):
        read += len(record)
        if read > _AT_ONCE_BYTES:
            await asyncio.sleep(0)
            read = len(record)
        await _require_few(record, framing.values, framing.field, place)
        try:
            value = _parse(record, framing.field, place)
            if len(record) > _AT_ONCE_BYTES:
                await asyncio.sleep(0)
            entry = entries.adapter.validate_python(await _with_long_lists(value, entries, place))
            if framing.alike:
                _share_parts(entry, parts)
            found.append(entry)
        except json.JSONDecodeError as error:
            errors += _refusal(f"is not JSON: {error.msg} at character {error.pos}", framing.field, place).errors()
        except ValidationError as error:
            errors += _with_place(error, framing, place)
        if len(errors) >= _SHOWN_ERRORS:
            break
    if errors:
        raise RequestValidationError(errors)
    return found


async def _with_long_lists(value: Json, entries: _Entries, place: int) -> Json:
    """The entry with its long lists validated, some of their objects between two turns of the loop.

    Raises RequestValidationError for the first of those that holds what is wrong.
    """
    kind = value.get("kind") if isinstance(value, dict) else None
    lists = entries.long_lists.get(kind, {}) if isinstance(kind, str) else {}
    for name, adapter in lists.items():
        objects = value.get(name)
        if not isinstance(objects, list) or len(objects) <= _AT_ONCE_OBJECTS:
            continue
        found: list[Any] = []
        for start in range(0, len(objects), _AT_ONCE_OBJECTS):
            try:
                found += adapter.validate_python(objects[start : start + _AT_ONCE_OBJECTS])
            except ValidationError as error:
                raise RequestValidationError([*_with_place(error, entries.framing, place, name, start=start)]) from None
            await asyncio.sleep(0)
        value = {**value, name: found}
    return value


def _share_parts(entry: BaseModel, parts: dict[tuple[str, str], Any]) -> None:
    """Has entries that say the same share it: a collection of garbage goes through every copy in one breath."""
    for name in type(entry).model_fields:
        part = getattr(entry, name)
        if isinstance(part, BaseModel):
            entry.__dict__[name] = parts.setdefault((name, part.model_dump_json()), part)


def _with_place(
    error: ValidationError, framing: Framing, place: int, *inside: str, start: int = 0
) -> Iterator[dict[str, Any]]:
    """Errors as FastAPI tells them; those in a list `inside` of the entry count from `start`."""
    for each in error.errors(include_url=False)[:_SHOWN_ERRORS]:
        number, *rest = each["loc"]
        found = (*inside, start + int(number), *rest) if inside else each["loc"]
        yield {**each, "loc": ("body", framing.field, place, *found)}


def _lines(body: bytes, framing: Framing) -> tuple[bytes, list[bytes]]:
    """The head, and the records that hold something."""
    if body.count(b"\n") > framing.most + 1:
        raise _refusal(f"has over {framing.most} entries; at most {framing.most}", framing.field)
    head, *records = body.split(b"\n")
    records = [record for record in records if record.strip()]
    for place, record in enumerate(records):
        if len(record) > framing.record_bytes:
            told = f"has {len(record)} bytes; a record has at most {framing.record_bytes}: {_ELSEWHERE}"
            raise _refusal(told, framing.field, place)
    return head, records


async def _split(body: bytes, framing: Framing) -> tuple[bytes, list[bytes]]:
    """The JSON text without the entries of its list, and the entries, each the bytes of a JSON text."""
    parting = _Splitter(body, framing)
    for number, token in enumerate(_TOKEN.finditer(body)):
        if number % _AT_ONCE_TOKENS == 0:
            await asyncio.sleep(_REST_S)
        if parting.take(token.group()[:1], token.start(), token.end()):
            break
    return parting.head, parting.records


class _Splitter:
    """Follows the brackets of a JSON text until the list has ended."""

    def __init__(self, body: bytes, framing: Framing) -> None:
        self._body = body
        self._framing = framing
        self._key = b'"%s"' % framing.field.encode()
        self._depth = 0
        self._text = (0, 0)
        self._begin: int | None = None
        """Of the list."""
        self._entry = 0
        self._values = 0
        self.records: list[bytes] = []
        self.head = body

    def take(self, kind: bytes, start: int, end: int) -> bool:
        """Takes the next token; whether the list has ended with it."""
        if kind == b'"':
            self._text = (start, end) if self._depth == 1 else self._text
            return False
        if self._begin is not None:
            self._count()
            if self._depth == 2 and kind in (b",", b"]"):
                self._add(start, last=kind == b"]")
                self._entry = end
        if kind in (b"[", b"{"):
            self._depth += 1
            if kind == b"[" and self._depth == 2 and self._begin is None and self._is_named(start):
                self._begin = self._entry = end
        elif kind in (b"]", b"}"):
            self._depth -= 1
        if self._begin is None or self._depth > 1:
            return False
        self.head = self._body[: self._begin] + self._body[start:]
        return True

    def _count(self) -> None:
        self._values += 1
        if self._values > self._framing.values:
            told = f"holds more than {self._framing.values} values: {_ELSEWHERE}"
            raise _refusal(told, self._framing.field, len(self.records))

    def _add(self, end: int, *, last: bool) -> None:
        entry = self._body[self._entry : end]
        if self.records or not last or entry.strip():  # nothing stands in an empty list
            self.records.append(entry)
        self._values = 0
        if len(self.records) > self._framing.most:
            most = self._framing.most
            raise _refusal(f"has over {most} entries; at most {most}", self._framing.field)

    def _is_named(self, bracket: int) -> bool:
        start, end = self._text
        return self._body[start:end] == self._key and _COLON.fullmatch(self._body, end, bracket) is not None


async def _require_few(text: bytes, most: int, *place: str | int) -> None:
    """Refuses what holds more than `most` values. Commas inside of texts count only where there are many."""
    if sum(map(text.count, (b",", b"[", b"{"))) <= most:
        return
    found = 0
    for number, token in enumerate(_TOKEN.finditer(text)):
        if number % _AT_ONCE_TOKENS == 0:
            await asyncio.sleep(_REST_S)
        found += token.group()[:1] in (b",", b"[", b"{")
        if found > most:
            raise _refusal(f"holds more than {most} values: {_ELSEWHERE}", *place)


def _as_utf8(body: bytes) -> bytes:
    encoding = json.detect_encoding(body)
    if encoding == "utf-8":
        return body
    try:
        return body.decode(encoding, "surrogatepass").encode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise _refusal(f"is not {error.encoding} at byte {error.start}: {error.reason}") from None


def _refusal(told: str, *place: str | int) -> RequestValidationError:
    return RequestValidationError([{"type": "value_error", "loc": ("body", *place), "msg": told, "input": None}])


def _too_large(detail: str) -> HTTPException:
    return HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
