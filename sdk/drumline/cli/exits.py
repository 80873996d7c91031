"""Exit codes, and errors as sentences. Loads nothing of the SDK until there is an error.

Refusals name what was typed: which flag sets which field of a submission.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drumline.contracts.problems import FieldProblem

OK = 0
RUN_FAILED = 1
USAGE = 2
SERVER = 3
DETACHED = 130

_SERVER_STATUS = frozenset({401, 403, 421, 429})


def exit_code(error: BaseException) -> int | None:
    """The code for an error of the SDK: 2 where the request was wrong, 3 where the server can't or won't serve it."""
    from drumline import errors

    match error:
        case errors.ServerTooOldError():
            return SERVER
        case errors.APIError():
            return SERVER if error.status >= 500 or error.status in _SERVER_STATUS else USAGE
        case errors.ServerUnreachableError() | errors.StreamError() | errors.ConfigError():
            return SERVER
        case errors.RunFailedError() | errors.RunCancelledError():
            return RUN_FAILED
        case errors.DrumlineError():
            return USAGE
    return None


def explain(error: BaseException) -> str:
    """The error for a terminal: what, each wrong field, what to do, and the id that finds it in the server's log."""
    from drumline import errors
    from drumline.wording import plain

    lines = [f"Error: {with_flag(str(error), error.name) if isinstance(error, errors.OptionError) else error}"]
    if isinstance(error, errors.APIError):
        lines = _refusal_lines(str(error), error.problem.errors)
    hint = getattr(error, "hint", "")
    if hint:
        lines.append(f"Hint: {hint}")
    if isinstance(error, errors.APIError) and error.request_id:
        lines.append(f"Request: {error.request_id}")
    return "\n".join(plain(line) for line in lines)


def _refusal_lines(told: str, fields: "Sequence[FieldProblem]") -> list[str]:
    """What the server said, and each wrong field that it did not name; the first is mostly all that it said."""
    lines = [f"  {flag_of(each.field) or each.field}: {each.message}" for each in fields]
    if not fields or fields[0].message not in told:
        return [f"Error: {told}", *lines]
    first = fields[0].field
    if first and not told.startswith(f"{first}: "):
        told = f"{first}: {told}"
    return [f"Error: {with_flag(told, first)}", *lines[1:]]


_FLAGS = {
    "name": "--name",
    "entrypoint": "--entrypoint",
    "strategy": "--strategy",
    "replicas": "--replicas",
    "platform": "--platform",
    "spread": "--spread",
    "run_s": "--time-limit",
    "queue_s": "--queue-limit",
    "step_s": "--step-limit",
    "first_step_s": "--first-step-limit",
    "rendezvous_s": "--rendezvous-limit",
    "grace_s": "--grace",
    "retries.user": "--retries",
    "retries.infrastructure": "--infrastructure-retries",
    "priority": "--priority",
    "labels": "--label",
    "parameters": "--parameter",
    "every_steps": "--checkpoint-every",
    "keep": "--keep",
    "keep_every_steps": "--keep-every",
    "record": "--record",
    "resume_from": "--resume-from",
    "steps": "--steps",
    "limit_s": "--probe-limit",
}
_WITHIN = ("body.", "action.", "run.", "job.", "program.", "resources.", "limits.", "checkpoint.", "probe.")
"""Parts of a submission whose fields have flags of their own."""


def flag_of(field: str) -> str | None:
    """`--time-limit` for `run_s` and for `limits.run_s`; `--label team` for `labels.team`; None where none sets it."""
    for part in _WITHIN:
        field = field.removeprefix(part)
    if field in _FLAGS:
        return _FLAGS[field]
    first, _, rest = field.partition(".")
    return f"{_FLAGS[first]} {rest}" if first in ("labels", "parameters", "record") else None


def with_flag(message: str, field: str) -> str:
    """`--replicas 0: ...` for `replicas=0: ...`, and `--label a b: ...` for `labels.a b: ...`."""
    flag = flag_of(field)
    rest = message.removeprefix(field)
    if flag is None or not message.startswith((f"{field}=", f"{field}: ")):
        return message
    is_pair = " " in flag
    return f"{flag}{rest}" if is_pair or rest[0] == ":" else f"{flag} {rest[1:]}"
