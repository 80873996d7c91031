"""`drumline delete`."""

from collections.abc import Sequence
from typing import Any

import click

from drumline.cli.options import connect, find_run, json_option, server_options
from drumline.cli.terminal import json_text
from drumline.contracts import api


@click.command()
@click.argument("run_ids", metavar="[RUN]...", nargs=-1)
@click.option("--where", help="All ended runs that match this filter, in place of RUN.")
@click.option("--why", default="", help="Kept in the audit log.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
@server_options
def delete(run_ids: tuple[str, ...], where: str | None, as_json: bool, url: str | None, **how: Any) -> None:
    """Delete runs that have ended, for good, with all that they logged. What they used stays in the ledger."""
    why, yes = str(how["why"]), bool(how["yes"])
    if bool(run_ids) == (where is not None):
        raise click.UsageError("name either runs or --where")
    with connect(url) as client:
        if where is None:
            runs = [find_run(client, run_id) for run_id in run_ids]
            _ask(yes, ", ".join(f"{run.id} ({run.job})" for run in runs))
            deleted = [run.delete(why) for run in runs]
            click.echo(json_text(deleted) if as_json else f"{len(deleted)} deleted")
            return
        matching = client.runs(where, archived=True)
        _ask(yes, f"the runs that match, {matching.count()} with those that live, which are kept")
        change = matching.delete(why)
    click.echo(json_text(change) if as_json else f"{change.changed} of {change.total} runs deleted")
    if not as_json:
        _tell(change.refused)


def _ask(yes: bool, what: str) -> None:
    if not yes:
        click.confirm(f"Delete {what}, for good?", abort=True, err=True)


def _tell(refused: Sequence[api.Refusal]) -> None:
    for each in refused:
        click.echo(f"{each.detail} {each.hint}", err=True)
