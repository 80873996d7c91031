"""`drumline plan`."""

from typing import TYPE_CHECKING, Any

import click

from drumline._flags import Duration
from drumline.cli.options import connect, json_option, server_options
from drumline.cli.submission import arguments, submission_options
from drumline.cli.terminal import json_text

if TYPE_CHECKING:
    from drumline.client import Client
    from drumline.program import PackedProgram
    from drumline.resources.plans import Plan


@click.command()
@click.argument("program", type=click.Path(exists=True))
@submission_options
@click.option("--steps", type=int, default=16, show_default=True, help="Steps of the program to look at.")
@click.option("--probe-limit", type=Duration(), default="60s", show_default=True, help="How long looking may take.")
@click.option("--no-probe", is_flag=True, help="Only say where the replicas would sit.")
@json_option
@server_options
def plan(
    *,
    program: str,
    url: str | None,
    as_json: bool,
    steps: int,
    probe_limit: float,
    no_probe: bool,
    **wanted: Any,
) -> None:
    """Say what a run of PROGRAM would do, and run nothing.

    Which replica sits on which device, or why the run would wait; and from the program's first steps, on simulated
    devices of a worker: batches, variables, exchanges with their bytes, memory per device. Exits with 1 where the
    program could not be looked at.
    """
    from drumline.program import PackedProgram

    with connect(url) as client:
        made = make(client, PackedProgram.of(program), wanted, steps=steps, limit_s=probe_limit, probe=not no_probe)
    show(made, as_json=as_json)
    raise SystemExit(exit_code(made))


def make(client: "Client", packed: "PackedProgram", wanted: dict[str, Any], **terms: Any) -> "Plan":
    """Makes the plan and waits for it, saying so on stderr. Ctrl-C ends the probe."""
    made = client.plan(packed, wait=False, **terms, **arguments(packed, wanted))
    if made.pending:
        click.echo(f"looking at the program's first steps on {made.details.probe.host_name} ...", err=True)
    try:
        return made.wait()
    except KeyboardInterrupt:
        made.cancel()
        raise


def show(made: "Plan", *, as_json: bool) -> None:
    """Prints it on stdout."""
    click.echo(json_text(made.details) if as_json else str(made))


def exit_code(made: "Plan") -> int:
    """1 where the probe found nothing that it should have."""
    from drumline.cli.exits import OK, RUN_FAILED
    from drumline.contracts.plans import ProbeState

    return RUN_FAILED if made.details.probe.state in (ProbeState.FAILED, ProbeState.BUSY) else OK
