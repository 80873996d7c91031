"""`drumline watch`."""

import click

from drumline.cli.options import connect, find_run, json_option, logs_option, server_options


@click.command()
@click.argument("run_id", metavar="RUN")
@logs_option(default=False)
@json_option
@server_options
def watch(run_id: str, with_logs: bool, as_json: bool, url: str | None) -> None:
    """Watch a run until it ends; exits with 0 if it succeeded, 1 if it failed."""
    from drumline.cli.watching import report, watch_to_end

    with connect(url) as client:
        run = find_run(client, run_id)
        click.echo(f"{run.id}  {run.url}", err=as_json)
        if not run.ended:
            watch_to_end(run, with_logs=with_logs)
        report(run, as_json=as_json, with_logs=with_logs)
