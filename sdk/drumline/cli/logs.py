"""`drumline logs`."""

import json

import click

from drumline.cli.exits import DETACHED
from drumline.cli.options import connect, find_run, json_option, server_options
from drumline.cli.terminal import inert_json
from drumline.wording import plain


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run ends.")
@click.option("--tail", "tail_bytes", type=click.IntRange(1), metavar="BYTES", help="Only the last so many bytes.")
@click.option("--attempt", help="Of this attempt [default: the newest].")
@click.option("--member", help="Of this member [default: the first].")
@json_option
@server_options
def logs(
    *,
    run_id: str,
    follow: bool,
    tail_bytes: int | None,
    attempt: str | None,
    member: str | None,
    as_json: bool,
    url: str | None,
) -> None:
    """Print a run's output. With --json, a line of JSON for each stretch of output."""
    with connect(url) as client:
        run = find_run(client, run_id)
        try:
            for segment in run.logs(follow=follow, start=-(tail_bytes or 0), attempt=attempt, member=member):
                if as_json:
                    click.echo(inert_json(json.dumps(segment.model_dump(mode="json"))))
                else:
                    click.echo(plain(segment.text), nl=False)
        except KeyboardInterrupt:
            raise SystemExit(DETACHED) from None
