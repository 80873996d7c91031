"""`drumline rerun`."""

import click

from drumline.cli.options import connect, detach_option, find_run, json_option, logs_option, server_options


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--wait-for-devices", is_flag=True, help="Queue the run even if no host could hold it now.")
@click.option("--from-start", is_flag=True, help="Start over, also if the old run resumed from a checkpoint.")
@detach_option
@logs_option(default=True)
@json_option
@server_options
def rerun(
    *,
    run_id: str,
    wait_for_devices: bool,
    from_start: bool,
    detach: bool,
    with_logs: bool,
    as_json: bool,
    url: str | None,
) -> None:
    """Run an old run again, with its own version, parameters and options, and watch it.

    To change something, submit the program again, or run the job: `drumline jobs run JOB --version N`.
    """
    from drumline.cli.watching import follow

    with connect(url) as client:
        run = find_run(client, run_id).rerun(wait_for_devices=wait_for_devices or None, from_start=from_start)
        follow(run, detach=detach, as_json=as_json, with_logs=with_logs)
