"""`drumline mark`."""

from typing import Any

import click

from drumline._flags import KeyValue
from drumline.cli.options import connect, find_run, json_option, server_options
from drumline.cli.terminal import json_text


@click.command()
@click.argument("run_ids", metavar="[RUN]...", nargs=-1)
@click.option("--where", help="All runs that match this filter, in place of RUN.")
@click.option("--label", "labels", type=KeyValue(), multiple=True, help="Set a label; repeatable.")
@click.option("--unlabel", multiple=True, metavar="NAME", help="Take a label away; repeatable.")
@click.option("--note", help="Replace the note.")
@click.option("--star/--unstar", "starred", default=None, help="Star, or take the star away.")
@click.option("--archive/--unarchive", "archived", default=None, help="Leave out of lists, or show again.")
@json_option
@server_options
def mark(
    run_ids: tuple[str, ...],
    where: str | None,
    as_json: bool,
    url: str | None,
    **change: Any,
) -> None:
    """Label, note, star or archive runs, at any time."""
    if bool(run_ids) == (where is not None):
        raise click.UsageError("name either runs or --where")
    change["labels"] = {**dict(change["labels"]), **dict.fromkeys(change.pop("unlabel"))} or None
    if all(value is None for value in change.values()):
        raise click.UsageError("say what to change: --label, --unlabel, --note, --star or --archive")
    with connect(url) as client:
        if where is None:
            marked = [find_run(client, run_id).mark(**change) for run_id in run_ids]
            click.echo(json_text([run.details for run in marked]) if as_json else f"{len(marked)} marked")
            return
        changes = client.runs(where, archived=change["archived"] is False).mark(**change)
    if as_json:
        click.echo(json_text(changes))
    for each in () if as_json else changes:
        click.echo(f"{each.action.kind}: {each.changed} of {each.total} runs changed")
