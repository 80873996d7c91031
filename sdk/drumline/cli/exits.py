"""Exit codes, and errors as sentences. Loads nothing of the SDK until there is an error."""

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
    from drumline.cli.flags import flag_of, with_flag
    from drumline.wording import plain

    lines = [f"Error: {with_flag(str(error), error.name) if isinstance(error, errors.OptionError) else error}"]
    if isinstance(error, errors.APIError):
        lines += [f"  {flag_of(field.field) or field.field}: {field.message}" for field in error.problem.errors]
    hint = getattr(error, "hint", "")
    if hint:
        lines.append(f"Hint: {hint}")
    if isinstance(error, errors.APIError) and error.request_id:
        lines.append(f"Request: {error.request_id}")
    return "\n".join(plain(line) for line in lines)
