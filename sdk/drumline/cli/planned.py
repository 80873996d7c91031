"""`drumline planned`."""

import click

from drumline.cli.options import connect, find_run, json_option, server_options
from drumline.cli.terminal import json_text


@click.command()
@click.argument("run_id", metavar="RUN")
@json_option
@server_options
def planned(run_id: str, as_json: bool, url: str | None) -> None:
    """Compare a run with the plan that it was submitted from.

    Exits with 1 where the run did something else than planned.
    """
    from drumline.cli.exits import OK, RUN_FAILED
    from drumline.resources.text import comparison_text

    with connect(url) as client:
        comparison = find_run(client, run_id).planned
    click.echo(json_text(comparison) if as_json else comparison_text(comparison))
    raise SystemExit(RUN_FAILED if comparison.differences else OK)
