"""`drumline stacks`."""

import click

from drumline._flags import Duration
from drumline.cli.options import connect, find_run, json_option, server_options
from drumline.cli.terminal import json_text
from drumline.resources.runs import STACKS_S
from drumline.resources.text import stacks_text


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option(
    "--timeout", type=Duration(), default=STACKS_S, help="Time that the processes have to answer. [default: 5s]"
)
@json_option
@server_options
def stacks(run_id: str, timeout: float, as_json: bool, url: str | None) -> None:
    """Say where each process of a live run stands: phase, last program, stacks. The program is not disturbed."""
    with connect(url) as client:
        told = find_run(client, run_id).ask_stacks(timeout)
    if as_json:
        click.echo(json_text(told))
        return
    for member in told.members:
        click.echo(f"rank {member.rank} on {member.host_name}: {stacks_text(member)}\n")
