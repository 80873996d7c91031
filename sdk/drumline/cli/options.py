"""Options that several commands share, and what commands print: JSON that no terminal obeys, and ages."""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from drumline.wording import name_some

if TYPE_CHECKING:
    from pydantic import BaseModel

    from drumline.client import Client
    from drumline.contracts.api import PrincipalRef
    from drumline.contracts.spec import Retries
    from drumline.resources.runs import Run


Command = TypeVar("Command", bound=Callable[..., Any])


def json_option(command: Command) -> Command:
    """`--json`: one JSON document on stdout instead of text."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def detach_option(command: Command) -> Command:
    """`--detach`: don't stay to watch."""
    return click.option("--detach", is_flag=True, help="Print the run and return; don't watch it.")(command)


def logs_option(*, default: bool) -> Callable[[Command], Command]:
    """`--logs`, `--no-logs`: whether watching prints what the program prints, on stderr."""
    word = "printed" if default else "not printed"
    return click.option(
        "--logs/--no-logs", "with_logs", default=default, help=f"The program's output while watching [default: {word}]."
    )


def spread_option(command: Command) -> Command:
    """`--spread`: how a gang is split over hosts. The contract says which there are, as for `--platform`."""
    return click.option(
        "--spread", default="pack", show_default=True, help="Over hosts: pack, balance or one_host (never split)."
    )(command)


def anyway_option(command: Command) -> Command:
    """`--anyway`: a plan's verdict refuses nothing."""
    return click.option(
        "--anyway", is_flag=True, help="Queue it even if a plan of the same content says that it does not fit."
    )(command)


def retry_options(command: Command) -> Command:
    """`--retries`, `--infrastructure-retries`: how often a run is tried again, and after what."""
    of_program = click.option(
        "--retries", type=int, default=0, show_default=True, help="Tries again after a program's error."
    )
    of_machinery = click.option(
        "--infrastructure-retries",
        type=int,
        default=3,
        show_default=True,
        help="Tries again after a lost host, a hang, or memory that ran out.",
    )
    return of_program(of_machinery(command))


def retries_of(wanted: dict[str, Any]) -> "Retries":
    """What `retry_options` were given. OptionError for a number that the contract refuses."""
    from drumline._validation import typed_errors
    from drumline.contracts.spec import Retries

    with typed_errors("retries"):
        return Retries(user=wanted["retries"], infrastructure=wanted["infrastructure_retries"])


def server_options(command: Command) -> Command:
    """`--url`: another server. There is no `--token`: other users of the machine see command lines."""
    return click.option("--url", help="Address of the server [default: DRUMLINE_URL, else what `drumline up` runs].")(
        command
    )


def connect(url: str | None) -> "Client":
    """A client of that server, or of the configured one."""
    from drumline.client import Client

    return Client(url)


def find_attempt(run: "Run", text: str | None) -> str | None:
    """The id of the attempt of that number, as pages call it, or of that id. UsageError for another one."""
    if text is None:
        return None
    attempts = {str(attempt.number): attempt.id for attempt in run.attempts}
    if text in attempts.values():
        return text
    if text not in attempts:
        has = f"it has {name_some(sorted(attempts, key=int))}" if attempts else "it has none yet"
        raise click.UsageError(f"{run.id} has no attempt {text!r}; {has}")
    return attempts[text]


_UNSEEN = re.compile(
    "[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0001-\U000e007f]"
)
"""Control and format characters that JSON may hold as they are; what is below a space it may not."""


def json_text(found: "BaseModel | Sequence[BaseModel] | None") -> str:
    """An answer as JSON that is the same to whoever parses it, and that a terminal cannot obey."""
    if found is None:
        return "null"
    if isinstance(found, Sequence):
        return f"[{','.join(map(json_text, found))}]"
    return inert_json(found.model_dump_json())


def inert_json(text: str) -> str:
    """JSON with each control or format character written as its escape."""
    return _UNSEEN.sub(lambda match: _escape(match.group()), text)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def principal_text(who: "PrincipalRef") -> str:
    """The name of who did something; `unknown` where nobody wrote it down."""
    return "unknown" if who.name is None else who.name


def age(moment: datetime | None, now: datetime | None = None) -> str:
    """How long ago, in one unit as the dashboard says it: `now`, `42 s`, `3 min`, `5 h`, `2 d`."""
    if moment is None:
        return "-"
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    if seconds < 2:
        return "now"
    for bound, length, unit in ((60, 1, "s"), (3_600, 60, "min"), (172_800, 3_600, "h")):
        if seconds < bound:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds // 86_400:.0f} d"
