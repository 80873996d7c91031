"""`drumline logs`."""

import json
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from drumline._flags import Moment
from drumline.cli.exits import DETACHED
from drumline.cli.options import connect, find_attempt, inert_json, json_option, json_text, server_options
from drumline.wording import plain

if TYPE_CHECKING:
    from drumline.contracts.api import LogHit, LogLevel, LogSearchPart, LogSegment, LogStream
    from drumline.resources.runs import Run

LEVELS = ("debug", "info", "warning", "error", "critical")
STREAMS = ("stdout", "stderr", "system")


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run ends.")
@click.option("--tail", "tail_bytes", type=click.IntRange(1), metavar="BYTES", help="Only the last so many bytes.")
@click.option("--find", metavar="TEXT", help="Only lines that hold this, of all members; the server looks for them.")
@click.option("--regex", is_flag=True, help="The text to find is an expression (RE2).")
@click.option("--match-case", is_flag=True, help="Upper and lower case differ.")
@click.option("--level", type=click.Choice(LEVELS), help="Only lines as grave as that or graver, by what they say.")
@click.option("--stream", type=click.Choice(STREAMS), help="Only lines of that.")
@click.option("--since", type=Moment(), help="Only lines from then on: 10m (ago), or 2026-01-31T08:00:00Z.")
@click.option("--until", type=Moment(), help="Only lines until then.")
@click.option("--attempt", metavar="ATTEMPT", help="Of this attempt, by number or id [default: the newest].")
@click.option("--member", help="Of this member [default: the first; with --find all].")
@json_option
@server_options
def logs(  # noqa: PLR0913 - one parameter for each option
    *,
    run_id: str,
    follow: bool,
    tail_bytes: int | None,
    find: str | None,
    regex: bool,
    match_case: bool,
    level: "LogLevel | None",
    stream: "LogStream | None",
    since: datetime | None,
    until: datetime | None,
    attempt: str | None,
    member: str | None,
    as_json: bool,
    url: str | None,
) -> None:
    """Print a run's output. With --json, a line of JSON for each stretch of output, or for each line that is found.

    With --find, --level, --stream, --since or --until: the lines of which all that holds, of all members.
    """
    which = {"level": level, "stream": stream, "since": since, "until": until}
    named = [f"--{name}" for name, value in which.items() if value is not None]
    _refuse_mixtures(find, named, follow=follow, tail=tail_bytes is not None, options=regex or match_case)
    with connect(url) as client:
        run = client.get(run_id)
        attempt = find_attempt(run, attempt)
        whose = {"attempt": attempt, "member": member}
        try:
            if find is None and not named:
                _print_output(run.logs(follow=follow, start=-(tail_bytes or 0), **whose), as_json=as_json)
                return
            progress = _Progress()
            how = {**which, **whose, "regex": regex, "ignore_case": not match_case, "on_part": progress.tell}
            hits = run.search_logs(find or "", **how)  # type: ignore[arg-type] # each is of its own type
            _print_found(hits, ranks=_has_ranks(run, attempt, member), as_json=as_json)
            progress.close(find, named)
        except KeyboardInterrupt:
            raise SystemExit(DETACHED) from None


def _print_output(segments: "Iterator[LogSegment]", *, as_json: bool) -> None:
    for segment in segments:
        if as_json:
            click.echo(inert_json(json.dumps(segment.model_dump(mode="json"))))
        else:
            click.echo(plain(segment.text), nl=False)


def _refuse_mixtures(find: str | None, named: Sequence[str], *, follow: bool, tail: bool, options: bool) -> None:
    if find is None and options:
        raise click.UsageError("--regex and --match-case say how to look for --find TEXT: name the text too.")
    looks = [*(["--find"] if find is not None else []), *named]
    if looks and (follow or tail):
        raise click.UsageError(f"{looks[0]} looks through the whole output: leave out --follow and --tail.")
    if find == "":
        raise click.UsageError("--find '' is in every line: name a text.")


class _Progress:
    """How far a search came, on a terminal's stderr."""

    def __init__(self) -> None:
        self._shows = sys.stderr.isatty()
        self._found = self._lines = 0

    def tell(self, part: "LogSearchPart") -> None:
        """Before the part's lines are printed."""
        self._found += len(part.hits)
        self._lines = part.lines
        if self._shows:
            share = 100 * part.searched_bytes // max(1, part.total_bytes)
            click.echo(f"\r\x1b[Klooked through {share} %\r", err=True, nl=False)

    def close(self, find: str | None, named: Sequence[str]) -> None:
        """Says so where nothing was found."""
        if self._shows:
            click.echo("\r\x1b[K", err=True, nl=False)
        if not self._found:
            what = "is of that " + " and ".join(name.removeprefix("--") for name in named)
            if find is not None:
                what = f"holds {plain(find)!r}{' and ' + what if named else ''}"
            # Between two moments only the lines of that time are looked at, and counted.
            none = {"since", "until"}.intersection(name.removeprefix("--") for name in named) and not self._lines
            click.echo("There is no output of that time." if none else f"None of {self._lines} lines {what}.", err=True)


def _has_ranks(run: "Run", attempt: str | None, member: str | None) -> bool:
    if member is not None:
        return False
    return any(len(each.members) > 1 for each in run.attempts if attempt in (None, each.id))


def _print_found(hits: "Iterator[LogHit]", *, ranks: bool, as_json: bool) -> None:
    """Each line with its number, and with its rank where the attempt has several members."""
    for hit in hits:
        place = f"{hit.rank}:{hit.line}" if ranks else f"{hit.line}"
        click.echo(json_text(hit) if as_json else f"{place}: {plain(hit.text)}")
