"""Every error answer of the API: problem+json with a stable code, a request id and no traceback."""

import json
import reprlib
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import Scope, Send

from drumline.contracts.problems import (
    PROBLEM_MEDIA_TYPE,
    FieldProblem,
    Problem,
    ProblemCode,
    field_of,
    in_words,
    nearest,
)
from drumline_server.base.errors import DrumlineError

STATUS: dict[ProblemCode, HTTPStatus] = {
    ProblemCode.UNAUTHENTICATED: HTTPStatus.UNAUTHORIZED,
    ProblemCode.FORBIDDEN: HTTPStatus.FORBIDDEN,
    ProblemCode.NOT_FOUND: HTTPStatus.NOT_FOUND,
    ProblemCode.METHOD_NOT_ALLOWED: HTTPStatus.METHOD_NOT_ALLOWED,
    ProblemCode.INVALID_REQUEST: HTTPStatus.UNPROCESSABLE_ENTITY,
    ProblemCode.PAYLOAD_TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    ProblemCode.UNSUPPORTED_MEDIA_TYPE: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    ProblemCode.HOST_NOT_ALLOWED: HTTPStatus.MISDIRECTED_REQUEST,
    ProblemCode.ORIGIN_NOT_ALLOWED: HTTPStatus.FORBIDDEN,
    ProblemCode.DOES_NOT_FIT: HTTPStatus.UNPROCESSABLE_ENTITY,
    ProblemCode.TOO_MANY_SIMULATED: HTTPStatus.UNPROCESSABLE_ENTITY,
    ProblemCode.TOO_MANY_REPLICAS: HTTPStatus.UNPROCESSABLE_ENTITY,
    ProblemCode.UNKNOWN_STRATEGY: HTTPStatus.UNPROCESSABLE_ENTITY,
    ProblemCode.UNKNOWN_PARAMETER: HTTPStatus.UNPROCESSABLE_ENTITY,
    ProblemCode.BAD_PARAMETER: HTTPStatus.UNPROCESSABLE_ENTITY,
    ProblemCode.MISSING_PARAMETER: HTTPStatus.UNPROCESSABLE_ENTITY,
    ProblemCode.BAD_SWEEP: HTTPStatus.UNPROCESSABLE_ENTITY,
    ProblemCode.BAD_BUNDLE: HTTPStatus.UNPROCESSABLE_ENTITY,
    ProblemCode.BUNDLE_NOT_FOUND: HTTPStatus.UNPROCESSABLE_ENTITY,
    ProblemCode.ENTRYPOINT_NOT_FOUND: HTTPStatus.UNPROCESSABLE_ENTITY,
    ProblemCode.IDEMPOTENCY_MISMATCH: HTTPStatus.UNPROCESSABLE_ENTITY,
    ProblemCode.IDEMPOTENCY_IN_FLIGHT: HTTPStatus.CONFLICT,
    ProblemCode.ALREADY_TERMINAL: HTTPStatus.CONFLICT,
    ProblemCode.CONFLICT: HTTPStatus.CONFLICT,
    ProblemCode.FENCED: HTTPStatus.CONFLICT,
    ProblemCode.GONE: HTTPStatus.GONE,
    ProblemCode.RATE_LIMITED: HTTPStatus.TOO_MANY_REQUESTS,
    ProblemCode.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    ProblemCode.INTERNAL: HTTPStatus.INTERNAL_SERVER_ERROR,
}
"""The one place that knows which HTTP status an error code answers with."""

_CODE_OF_STATUS: dict[int, ProblemCode] = {
    400: ProblemCode.INVALID_REQUEST,
    401: ProblemCode.UNAUTHENTICATED,
    403: ProblemCode.FORBIDDEN,
    404: ProblemCode.NOT_FOUND,
    405: ProblemCode.METHOD_NOT_ALLOWED,
    413: ProblemCode.PAYLOAD_TOO_LARGE,
    415: ProblemCode.UNSUPPORTED_MEDIA_TYPE,
    429: ProblemCode.RATE_LIMITED,
    503: ProblemCode.UNAVAILABLE,
}
_SHOWN_VALUE = 80
_BRIEFLY = reprlib.Repr()
_BRIEFLY.maxlist = _BRIEFLY.maxdict = _BRIEFLY.maxtuple = 10
_BRIEFLY.maxstring = _BRIEFLY.maxother = _BRIEFLY.maxlong = _SHOWN_VALUE
_SHOWN_FIELD = 200
"""Characters of the name of a field that is wrong: whoever sends it may make it up."""
_SHOWN_ERRORS = 20
_SECRET_FIELDS = frozenset({"token", "code", "secret", "authorization", "key"})
_STRATEGIES = ("mirrored", "central_storage", "tpu", "one_device")


def install(app: FastAPI) -> None:
    """Answers every expected error of `app` as a problem; `http.request_context` catches the others."""
    app.add_exception_handler(DrumlineError, _on_drumline_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_exception)


def problem_body(error: DrumlineError, request_id: str, status: HTTPStatus | None = None) -> bytes:
    """The JSON of `error` in UTF-8, whatever its texts hold; `status` where it is not the usual one of the code."""
    status = status or STATUS[error.code]
    problem = Problem(
        title=status.phrase,
        status=status,
        code=error.code,
        detail=error.detail,
        hint=error.hint,
        request_id=request_id,
        errors=error.errors,
        context=error.context,
    )
    return json.dumps(_clean(problem.model_dump(mode="python")), ensure_ascii=False).encode()


def problem_headers(error: DrumlineError) -> dict[str, str]:
    """Headers that HTTP wants beside the status of `error`."""
    if error.code is ProblemCode.UNAUTHENTICATED:
        return {"WWW-Authenticate": "Bearer"}
    if error.code in (ProblemCode.RATE_LIMITED, ProblemCode.UNAVAILABLE):
        return {"Retry-After": str(error.context.get("retry_after_s", 1))}
    return {}


def _clean(value: object) -> object:
    """`value` as strict JSON in UTF-8 can carry it: no lone surrogates, non-finite numbers as strings."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {str(_clean(key)): _clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_clean(item) for item in value]
    if isinstance(value, float) and value - value != 0:
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)


def _answer(
    request: Request, error: DrumlineError, status: int | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    known = HTTPStatus(status or STATUS[error.code])
    body = problem_body(error, getattr(request.state, "request_id", ""), known)
    return Response(body, known, {**problem_headers(error), **(headers or {})}, PROBLEM_MEDIA_TYPE)


async def _on_drumline_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, DrumlineError)
    return _answer(request, error)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _CODE_OF_STATUS.get(error.status_code, ProblemCode.INVALID_REQUEST)
    detail = f"There is nothing at {request.url.path}." if error.status_code == 404 else str(error.detail)
    if error.status_code == 405:
        detail = f"{request.method} is not a method of {request.url.path}."
    return _answer(request, DrumlineError(code, detail), error.status_code, error.headers)


async def _on_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return _answer(request, invalid_request(error.errors()))


def invalid_request(errors: Sequence[Mapping[str, Any]]) -> DrumlineError:  # Any: pydantic's own error dicts
    """Pydantic's `errors` in words, each with its field and value."""
    fields = tuple(_field_problem(error) for error in errors[:_SHOWN_ERRORS])
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    first = fields[0]
    return DrumlineError(
        _code(errors[0]),
        f"{first.field}: {first.message}{more}" if first.field else f"{first.message}{more}",
        errors=fields,
        context={"errors_total": len(errors)},
    )


def _code(error: Mapping[str, Any]) -> ProblemCode:
    location = error["loc"]
    if error["type"] in ("union_tag_invalid", "union_tag_not_found") and location[-1] == "strategy":
        return ProblemCode.UNKNOWN_STRATEGY
    if error["type"] == "extra_forbidden" and "strategy" in location:
        return ProblemCode.UNKNOWN_PARAMETER
    return ProblemCode.INVALID_REQUEST


def _field_problem(error: Mapping[str, Any]) -> FieldProblem:
    location = [str(part) for part in error["loc"]]
    if error["type"] == "json_invalid":
        reason = error.get("ctx", {}).get("error", "not readable")
        return FieldProblem(field="", message=f"The body is not JSON: {reason} at character {location[-1]}.")
    source, path = (location[0], location[1:]) if location else ("body", [])
    field = field_of([part for at, part in enumerate(path) if not _is_strategy_tag(path, at)])[:_SHOWN_FIELD]
    if not path:
        return FieldProblem(field="", message=f"The {source} of the request: {_words(error)}.")
    return FieldProblem(field=field, message=f"{_words(error)}{_got(error, path)}")


def _is_strategy_tag(path: list[str], at: int) -> bool:
    """Whether a part of the path is no field but pydantic's name of the union member."""
    return at > 0 and path[at - 1] == "strategy" and path[at] in _STRATEGIES


def _words(error: Mapping[str, Any]) -> str:
    if error["type"] == "missing":
        return "is missing"
    if error["type"] == "extra_forbidden":
        return "is not a known field"
    if error["type"] == "union_tag_invalid":
        given = str(error.get("ctx", {}).get("tag", ""))[: _SHOWN_VALUE + 1]
        suggestion = nearest(given, list(_STRATEGIES)) if error["loc"][-1] == "strategy" else ""
        return f"'{given}' is unknown; one of {error['ctx']['expected_tags']}{suggestion}"
    message = in_words(error)
    return message[:1].lower() + message[1:]


def _got(error: Mapping[str, Any], path: list[str]) -> str:
    if error["type"] in ("missing", "union_tag_invalid", "union_tag_not_found"):
        return ""
    if any(part.lower() in _SECRET_FIELDS for part in path):
        return ""
    value = error.get("input")
    shown = f"an object of {len(value)} fields" if isinstance(value, dict) else _shorten(value)
    return f"; got {shown}"


def _shorten(value: object) -> str:
    if isinstance(value, list) and len(value) > _SHOWN_VALUE:
        return f"a list of {len(value)} entries"
    if isinstance(value, str) and len(value) > _SHOWN_VALUE:
        return f"{_shorten(value[:_SHOWN_VALUE])}... ({len(value)} characters)"
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else _BRIEFLY.repr(value)
    return text if len(text) <= 2 * _SHOWN_VALUE else f"{text[:_SHOWN_VALUE]}..."


async def send_problem(scope: Scope, send: Send, error: DrumlineError, status: HTTPStatus | None = None) -> None:
    """Sends `error` as the whole answer; `status` where it is not the usual one of the error's code."""
    status = status or STATUS[error.code]
    body = problem_body(error, scope.get("state", {}).get("request_id", ""), status)
    headers = {"content-type": PROBLEM_MEDIA_TYPE, "content-length": str(len(body)), **problem_headers(error)}
    raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": int(status), "headers": raw})
    await send({"type": "http.response.body", "body": body})
