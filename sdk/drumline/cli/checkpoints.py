"""`drumline checkpoints`."""

from typing import TYPE_CHECKING

import click

from drumline.cli.options import connect, find_run, json_option, server_options
from drumline.cli.terminal import age, json_text
from drumline.wording import size_text, table

if TYPE_CHECKING:
    from drumline.contracts.api import Checkpoint


@click.command()
@click.argument("run_id", metavar="RUN")
@json_option
@server_options
def checkpoints(run_id: str, as_json: bool, url: str | None) -> None:
    """List the checkpoints of RUN, the one that it would resume from first."""
    with connect(url) as client:
        run = find_run(client, run_id)
        found = list(run.checkpoints())
        attempts = {attempt.id: attempt.number for attempt in run.attempts}
    if as_json:
        click.echo(json_text(found))
    elif not found:
        click.echo(f"{run.id} has no checkpoints", err=True)
    else:
        headings = ("CHECKPOINT", "STEP", "ATTEMPT", "STATE", "SIZE", "AGE", "HOST")
        click.echo(table(headings, [_row(checkpoint, attempts[checkpoint.attempt]) for checkpoint in found]))


def _row(checkpoint: "Checkpoint", attempt: int) -> tuple[str, ...]:
    return (
        checkpoint.id,
        str(checkpoint.step),
        str(attempt),
        checkpoint.state.lower(),
        size_text(checkpoint.size_bytes),
        age(checkpoint.created_at),
        "shared" if checkpoint.shared else checkpoint.host_name,
    )
