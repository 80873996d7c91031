"""`drumline metrics`."""

import sys
from pathlib import Path

import click

from drumline.cli.options import connect, find_run, server_options


@click.command()
@click.argument("run_id", metavar="RUN")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--format", "form", type=click.Choice(["csv", "parquet", "arrow"]), default="csv", show_default=True)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file [default: stdout]."
)
@click.option("--attempt", help="Of this attempt [default: what counts of all].")
@server_options
def metrics(
    *, run_id: str, names: tuple[str, ...], form: str, output: Path | None, attempt: str | None, url: str | None
) -> None:
    """Print every point of a run's metrics, or of those named: a row each."""
    if output is None and form != "csv" and sys.stdout.isatty():
        raise click.UsageError(f"{form} is no text; name a file with -o, or send the output to one.")
    with connect(url) as client:
        run = find_run(client, run_id)
        if output is None:
            run.save_metrics(sys.stdout.buffer, *names, form=form, attempt=attempt)
        else:
            with output.open("wb") as target:
                run.save_metrics(target, *names, form=form, attempt=attempt)
