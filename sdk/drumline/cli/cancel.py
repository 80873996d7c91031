"""`drumline cancel`."""

import click

from drumline._flags import Duration
from drumline.cli.options import connect, find_run, json_option, server_options
from drumline.cli.terminal import json_text


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--grace", type=Duration(), help="Time that the program has to stop by itself.")
@json_option
@server_options
def cancel(run_id: str, grace: float | None, as_json: bool, url: str | None) -> None:
    """Ask a run to stop. Returns at once; an ended run is left as it is."""
    with connect(url) as client:
        run = find_run(client, run_id).cancel(grace)
        click.echo(json_text(run.details) if as_json else f"{run.id}  {run.state}")
