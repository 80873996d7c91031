"""`drumline logs`."""

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from drumline.cli.exits import DETACHED
from drumline.cli.options import connect, find_run, json_option, server_options
from drumline.cli.terminal import inert_json, json_text
from drumline.wording import plain

if TYPE_CHECKING:
    from drumline.contracts.api import LogHit, LogSearchPart
    from drumline.resources.runs import Run


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run ends.")
@click.option("--tail", "tail_bytes", type=click.IntRange(1), metavar="BYTES", help="Only the last so many bytes.")
@click.option("--find", metavar="TEXT", help="Only lines that hold this, of all members; the server looks for them.")
@click.option("--regex", is_flag=True, help="The text to find is an expression (RE2).")
@click.option("--match-case", is_flag=True, help="Upper and lower case differ.")
@click.option("--attempt", help="Of this attempt [default: the newest].")
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
    attempt: str | None,
    member: str | None,
    as_json: bool,
    url: str | None,
) -> None:
    """Print a run's output. With --json, a line of JSON for each stretch of output, or for each line that is found."""
    _refuse_mixtures(find, follow=follow, tail=tail_bytes is not None, options=regex or match_case)
    with connect(url) as client:
        run = find_run(client, run_id)
        try:
            if find is not None:
                progress = _Progress()
                hits = run.search_logs(
                    find,
                    regex=regex,
                    ignore_case=not match_case,
                    attempt=attempt,
                    member=member,
                    on_part=progress.tell,
                )
                _print_found(hits, ranks=_has_ranks(run, attempt, member), as_json=as_json)
                return progress.close(find)
            for segment in run.logs(follow=follow, start=-(tail_bytes or 0), attempt=attempt, member=member):
                if as_json:
                    click.echo(inert_json(json.dumps(segment.model_dump(mode="json"))))
                else:
                    click.echo(plain(segment.text), nl=False)
        except KeyboardInterrupt:
            raise SystemExit(DETACHED) from None
    return None


def _refuse_mixtures(find: str | None, *, follow: bool, tail: bool, options: bool) -> None:
    if find is None and options:
        raise click.UsageError("--regex and --match-case say how to look for --find TEXT: name the text too.")
    if find is not None and (follow or tail):
        raise click.UsageError("--find looks through the whole output: leave out --follow and --tail.")
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

    def close(self, find: str) -> None:
        """Says so where nothing was found."""
        if self._shows:
            click.echo("\r\x1b[K", err=True, nl=False)
        if not self._found:
            click.echo(f"None of {self._lines} lines holds {plain(find)!r}.", err=True)


def _has_ranks(run: "Run", attempt: str | None, member: str | None) -> bool:
    if member is not None:
        return False
    return any(len(each.members) > 1 for each in run.attempts if attempt in (None, each.id))


def _print_found(hits: "Iterator[LogHit]", *, ranks: bool, as_json: bool) -> None:
    """Each line with its number, and with its rank where the attempt has several members."""
    for hit in hits:
        place = f"{hit.rank}:{hit.line}" if ranks else f"{hit.line}"
        click.echo(json_text(hit) if as_json else f"{place}: {plain(hit.text)}")
