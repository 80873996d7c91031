"""`drumline submit`."""

from typing import Any

import click

from drumline.cli.options import connect, detach_option, json_option, logs_option, server_options
from drumline.cli.submission import arguments, submission_options


@click.command()
@click.argument("program", type=click.Path(exists=True))
@submission_options
@click.option("--dry-run", is_flag=True, help="Submit nothing; print the plan, as `drumline plan` does.")
@click.option("--plan", "plan_first", is_flag=True, help="Print the plan first, and submit from it.")
@detach_option
@logs_option(default=True)
@json_option
@server_options
def submit(
    *,
    program: str,
    url: str | None,
    as_json: bool,
    detach: bool,
    with_logs: bool,
    dry_run: bool,
    plan_first: bool,
    **wanted: Any,
) -> None:
    """Submit PROGRAM, a Python file or a directory, and watch its run.

    Prints the run's address first. Ctrl-C leaves the run alone and only stops watching. Exits with 0 if the run
    succeeded, 1 if it failed.
    """
    from drumline.cli import plan
    from drumline.cli.watching import follow
    from drumline.program import PackedProgram

    with connect(url) as client:
        packed = PackedProgram.of(program)
        if not (dry_run or plan_first):
            follow(
                client.submit(packed, **arguments(packed, wanted)),
                detach=detach,
                as_json=as_json,
                with_logs=with_logs,
            )
            return
        made = plan.make(client, packed, wanted)
        if dry_run:
            plan.show(made, as_json=as_json)
            raise SystemExit(plan.exit_code(made))
        click.echo(str(made), err=True)
        follow(made.submit(), detach=detach, as_json=as_json, with_logs=with_logs)
