"""What can go wrong in the server, without a word of HTTP: every error that leaves the file that raises it.

A caller is told of a DrumlineError, whose code `http.errors` maps to a status; others end a process or a turn of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drumline.contracts.problems import FieldProblem, ProblemCode


class DrumlineError(Exception):
    """A refusal that the caller can understand and act on.

    `detail` says what is wrong and names the value; `hint` says what to do; `context` holds the values for programs;
    `errors` names single fields.
    """

    def __init__(
        self,
        code: ProblemCode,
        detail: str,
        *,
        hint: str = "",
        context: Mapping[str, Any] | None = None,  # Any: JSON values such as {"replicas": 9, "devices": 8}
        errors: tuple[FieldProblem, ...] = (),
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.hint = hint
        self.context = dict(context or {})
        self.errors = errors


class NotFoundError(DrumlineError):
    """No such thing in the caller's project; a thing of another project answers the same."""

    def __init__(self, what: str, name: str, *, detail: str = "", hint: str = "") -> None:
        context = {"what": what, "name": name}
        detail = detail or f"There is no {what} {name}."
        super().__init__(ProblemCode.NOT_FOUND, detail, hint=hint, context=context)


class InvalidRequestError(DrumlineError):
    """One field of the request has a value that cannot be used."""

    def __init__(self, field: str, message: str, *, hint: str = "") -> None:
        super().__init__(
            ProblemCode.INVALID_REQUEST,
            f"{field}: {message}",
            hint=hint,
            errors=(FieldProblem(field=field, message=message),),
        )


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands in a text, in characters."""

    at: int
    length: int


class FilterError(DrumlineError):
    """A filter, sort or column that cannot be read: where, and what was meant perhaps."""

    def __init__(self, message: str, place: Place, *, field: str = "where", nearest: Sequence[str] = ()) -> None:
        where = f"at character {place.at + 1}: " if field == "where" else ""
        hint = f"Did you mean {' or '.join(nearest)}?" if nearest else "docs/design/lists.md says what a filter takes."
        super().__init__(
            ProblemCode.INVALID_REQUEST,
            f"{field}: {where}{message}",
            hint=hint,
            context={"at": place.at, "length": place.length, "nearest": list(nearest)},
            errors=(FieldProblem(field=field, message=message),),
        )


class RunDeletedError(NotFoundError):
    """The run was there, and somebody deleted it."""

    def __init__(self, run: str, job: str, by: str, at: str, why: str) -> None:
        super().__init__("run", run)
        self.args = (f"Run {run} of job {job} was deleted by {by} on {at}" + (f": {why}" if why else "."),)
        self.detail = self.args[0]
        self.context |= {"job": job, "deleted_by": by, "deleted_at": at, "why": why}


class RunInUseError(DrumlineError):
    """The run cannot be deleted: it lives, or another one resumes from it."""

    def __init__(self, run: str, detail: str, *, hint: str, context: Mapping[str, str]) -> None:
        super().__init__(ProblemCode.CONFLICT, detail, hint=hint, context={"run": run, **context})


class FencedError(DrumlineError):
    """The writer holds a fence that is not the current one: it must stop what it runs."""

    def __init__(self, member: str, fence: int, current: int) -> None:
        super().__init__(
            ProblemCode.FENCED,
            f"Member {member} writes with fence {fence}, but the run is at fence {current}.",
            hint="Stop this member's processes.",
            context={"member": member, "fence": fence, "current": current},
        )


class UnauthenticatedError(DrumlineError):
    """No credential, or one that is wrong, expired or revoked: all answer alike."""

    def __init__(self, detail: str = "This needs a valid token or a signed-in session.", *, hint: str = "") -> None:
        super().__init__(ProblemCode.UNAUTHENTICATED, detail, hint=hint or "Send 'Authorization: Bearer <token>'.")


class ForbiddenError(DrumlineError):
    """The caller is known, and may not do this."""

    def __init__(self, detail: str, *, hint: str = "") -> None:
        super().__init__(ProblemCode.FORBIDDEN, detail, hint=hint)


class CapError(DrumlineError):
    """A place of a kind that is counted is not free; `setting` is the cap's name in the environment."""

    def __init__(self, what: str, cap: int, setting: str, *, hint: str, retry_after_s: int = 5) -> None:
        super().__init__(
            ProblemCode.RATE_LIMITED,
            f"{what}: the cap is {cap} ({setting}).",
            hint=hint,
            context={"cap": setting, "limit": cap, "retry_after_s": retry_after_s},
        )


class DatabaseUnavailableError(DrumlineError):
    """The database could not do it now. A write that timed out may still have happened."""

    def __init__(self, detail: str) -> None:
        super().__init__(ProblemCode.UNAVAILABLE, detail, hint="Try again.", context={"retry_after_s": 1})


class TooMuchToReadError(DrumlineError):
    """The source needs more time or memory to read than anybody gets. The same content does so again."""

    def __init__(self, place: str, exceeded: str) -> None:
        super().__init__(
            ProblemCode.BAD_BUNDLE,
            f"{place or 'The program'} is too much to read: it takes more than {exceeded}.",
            hint="Keep generated code and data out of Python source: put them into data files, "
            "or leave the file out by .drumlineignore.",
            context={"file": place},
        )


class PatternError(Exception):
    """An expression that is none; the message says why."""


class LeadershipLostError(Exception):
    """Another server runs the loops now; nothing was written."""


class BrokerUnavailableError(Exception):
    """The broker did not take a notification; workers learn of their work by heartbeat."""


class LocalApiError(Exception):
    """The server of this machine could not be reached, or refused; the message says why."""


class StartError(Exception):
    """A server cannot start; the message says why and what to do."""


class DataDirectoryError(StartError):
    """The data directory cannot be used as it is."""


class ListenError(StartError):
    """The address cannot be used."""


class SchemaError(StartError):
    """The database's tables do not fit this server."""


class StoreError(StartError):
    """The store of content cannot be used, or is not that of the database."""


class BrokerRefusedError(BrokerUnavailableError, StartError):
    """The broker is a Redis or Valkey that is too old to be safe; the message says which, and what to install."""


class PartError(StartError):
    """A part of `drumline up` dies in a loop."""
