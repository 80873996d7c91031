"""`drumline submit`."""

from typing import Any

import click

from drumline.cli.options import anyway_option, connect, detach_option, json_option, logs_option, server_options
from drumline.cli.submission import arguments, submission_options


@click.command()
@click.argument("program", type=click.Path(exists=True))
@submission_options
@click.option("--dry-run", is_flag=True, help="Submit nothing; print the plan, as `drumline plan` does.")
@click.option("--plan", "plan_first", is_flag=True, help="Print the plan first, and submit from it.")
@click.option(
    "--on", metavar="CHIP:SHAPE", help="With --plan or --dry-run: plan for these chips, such as v5e:4x4 or h100:8."
)
@anyway_option
@detach_option
@logs_option(default=True)
@json_option
@server_options
def submit(  # noqa: PLR0913 - an option each
    *,
    program: str,
    url: str | None,
    as_json: bool,
    detach: bool,
    with_logs: bool,
    dry_run: bool,
    plan_first: bool,
    on: str | None,
    anyway: bool,
    **wanted: Any,
) -> None:
    """Submit PROGRAM, a Python file or a directory, and watch its run.

    Prints the run's address first. Ctrl-C leaves the run alone and only stops watching. Exits with 0 if the run
    succeeded, 1 if it failed.
    """
    from drumline.cli import plan
    from drumline.cli.watching import follow
    from drumline.program import PackedProgram

    if on is not None and not (dry_run or plan_first):
        raise click.UsageError("--on says what to plan for: add --plan or --dry-run")
    if anyway and dry_run:
        raise click.UsageError("--anyway submits what does not fit, and --dry-run submits nothing: drop one of them")
    with connect(url) as client:
        packed = PackedProgram.of(program)
        if not (dry_run or plan_first):
            run = client.submit(packed, anyway=anyway, **arguments(packed, wanted))
        else:
            made = plan.make(client, packed, wanted, on=on)
            if dry_run:
                plan.show(made, as_json=as_json)
                raise SystemExit(plan.exit_code(made))
            click.echo(str(made), err=True)
            run = made.submit(anyway=anyway)
        follow(run, detach=detach, as_json=as_json, with_logs=with_logs)
