"""`drumline why`."""

import click

from drumline.cli.options import connect, find_run, json_option, server_options
from drumline.cli.terminal import json_text


@click.command()
@click.argument("run_id", metavar="RUN")
@json_option
@server_options
def why(run_id: str, as_json: bool, url: str | None) -> None:
    """Say what a run waits for, and what would let it start.

    The rule that blocks it, what was seen, its place in the queue, and when it is expected to start. With --json, the
    API's `why`: `null` for a run that doesn't wait.
    """
    from drumline.cli.watching import show_warnings
    from drumline.resources.text import why_lines

    with connect(url) as client:
        run = find_run(client, run_id)
    reason = run.details.why
    if as_json:
        click.echo(json_text(reason))
    elif reason is not None:
        click.echo("\n".join([f"{run.id}  {run.state}", *why_lines(reason)]))
    else:
        where = "has ended" if run.ended else "is not held up"
        click.echo(f"{run.id}  {run.state}  It {where}: it waits for nothing.")
    show_warnings(run.details.warnings)
