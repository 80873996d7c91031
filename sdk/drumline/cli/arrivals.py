"""`drumline arrivals`."""

import click

from drumline.cli.options import connect, find_run, json_option, server_options
from drumline.cli.terminal import json_text


@click.command()
@click.argument("run_id", metavar="RUN")
@json_option
@server_options
def arrivals(run_id: str, as_json: bool, url: str | None) -> None:
    """Say when each member of RUN comes to the collectives, and whom the others wait for.

    Of the last sampled steps: medians, and in how many of them each came last.
    """
    from drumline.resources.arrival_text import arrivals_text

    with connect(url) as client:
        found = find_run(client, run_id).arrivals()
    click.echo(json_text(found) if as_json else arrivals_text(found))
