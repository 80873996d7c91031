"""Answers an error from below the framework, where no endpoint was reached."""

from http import HTTPStatus

from starlette.types import Scope, Send

from drumline.contracts.problems import PROBLEM_MEDIA_TYPE
from drumline_server.api_errors import STATUS, problem_body, problem_headers
from drumline_server.errors import DrumlineError


async def send_problem(scope: Scope, send: Send, error: DrumlineError, status: HTTPStatus | None = None) -> None:
    """Sends `error` as the whole answer; `status` where it is not the usual one of the error's code."""
    status = status or STATUS[error.code]
    body = problem_body(error, scope.get("state", {}).get("request_id", ""), status)
    headers = {"content-type": PROBLEM_MEDIA_TYPE, "content-length": str(len(body)), **problem_headers(error)}
    raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": int(status), "headers": raw})
    await send({"type": "http.response.body", "body": body})
