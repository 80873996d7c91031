"""What an answer of the server becomes where it is no success: the error of its refusal.

A client may be newer than its server, which then refuses what it does not know as it refuses any mistake. That is told
apart by the server's version, which is asked for only then.
"""

import re
from http import HTTPStatus
from importlib.metadata import version

import httpx2
from pydantic import ValidationError

from drumline import errors
from drumline.contracts import api
from drumline.contracts.problems import Problem, ProblemCode

_BY_CODE: dict[str, type[errors.APIError]] = {
    ProblemCode.DOES_NOT_FIT: errors.DoesNotFitError,
    ProblemCode.TOO_MANY_SIMULATED: errors.TooManyReplicasError,
    ProblemCode.TOO_MANY_REPLICAS: errors.TooManyReplicasError,
    **dict.fromkeys(
        (
            ProblemCode.BAD_BUNDLE,
            ProblemCode.BUNDLE_NOT_FOUND,
            ProblemCode.ENTRYPOINT_NOT_FOUND,
            ProblemCode.UNKNOWN_PARAMETER,
            ProblemCode.BAD_PARAMETER,
            ProblemCode.MISSING_PARAMETER,
        ),
        errors.RejectedProgramError,
    ),
}
_BY_STATUS: dict[int, type[errors.APIError]] = {
    401: errors.AuthenticationError,
    403: errors.PermissionDeniedError,
    404: errors.NotFoundError,
    409: errors.ConflictError,
    410: errors.NotFoundError,
    413: errors.PayloadTooLargeError,
    421: errors.PermissionDeniedError,
    429: errors.RateLimitedError,
}
_UNREADABLE = "unreadable_answer"
_UNKNOWN_ROUTE = "There is nothing at "
_UNKNOWN_FIELD = re.compile(r"^is not a known field|^has no parameter |' is unknown; one of ")
"""How servers since 0.1.0 refuse what they do not know; a missing thing of a known kind is told otherwise."""


def error_of(response: httpx2.Response) -> errors.APIError:
    """The APIError that the answer, which is no success, is."""
    problem = problem_of(response)
    by_status = errors.ServerError if response.is_server_error else errors.InvalidRequestError
    return _BY_CODE.get(str(problem.code), _BY_STATUS.get(response.status_code, by_status))(problem)


def problem_of(response: httpx2.Response) -> Problem:
    """What the answer says is wrong, or that no Drumline server gave it."""
    try:
        return Problem.model_validate_json(response.content)
    except ValidationError:
        status = response.status_code
        title = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else f"HTTP status {status}"
        detail = f"{response.request.url.host} answered {status} {title}, and not as a Drumline server does"
        return Problem(title=title, status=status, code=f"http_{status}", detail=detail)


def unreadable(response: httpx2.Response, error: ValidationError) -> errors.ServerError:
    """Of an answer that is a success and not of the model that was expected."""
    url = response.request.url
    problem = Problem(
        title="unreadable answer",
        status=response.status_code,
        code=_UNREADABLE,
        detail=f"the answer of {url.host} to {url.path} is not what this client knows: {error.error_count()} errors",
        hint="upgrade the older of server and client: `drumline version` shows both",
    )
    return errors.ServerError(problem)


def is_for_versions(error: errors.APIError) -> bool:
    """Whether it may come of a server that is older than this client."""
    problem = error.problem
    if error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
        return error.code == ProblemCode.METHOD_NOT_ALLOWED or problem.detail.startswith(_UNKNOWN_ROUTE)
    return error.code == _UNREADABLE or any(_UNKNOWN_FIELD.search(each.message) for each in problem.errors)


def error_of_older_server(error: errors.APIError, url: str, server: api.Version) -> errors.APIError:
    """ServerTooOldError where the server is older than this client, else `error`, which is then what it seems to be.

    Builds between two releases are of one version, and are told apart by what they speak with workers.
    """
    from drumline.contracts.worker_api import PROTOCOL_VERSION  # only here: an import of all clients would pay for it

    theirs, ours = server.version, version("drumline")
    if (_numbers(theirs), server.protocol) >= (_numbers(ours), PROTOCOL_VERSION):
        return error
    if theirs == ours:
        theirs, ours = f"{theirs} (protocol {server.protocol})", f"{ours} (protocol {PROTOCOL_VERSION})"
    return errors.ServerTooOldError(error, url, theirs, ours)


def _numbers(release: str) -> tuple[int, ...]:
    """`(0, 10, 2)` of `0.10.2rc1`; what is no version of ours is older than all."""
    found = re.match(r"[0-9]{1,9}(\.[0-9]{1,9}){0,5}", release)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
