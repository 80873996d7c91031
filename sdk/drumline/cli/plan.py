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
@click.option("--probe-limit", type=Duration(), help="How long looking may take [default: 60s; 10m with --on].")
@click.option(
    "--on", metavar="CHIP:SHAPE", help="Compile for chips that need not be there, such as v5e:16x16 or h100:8."
)
@click.option("--batch-parameter", metavar="NAME", help="With --on: find the largest value of this that fits.")
@click.option("--no-probe", is_flag=True, help="Only say where the replicas would sit.")
@json_option
@server_options
def plan(
    *,
    program: str,
    url: str | None,
    as_json: bool,
    steps: int,
    probe_limit: float | None,
    on: str | None,
    batch_parameter: str | None,
    no_probe: bool,
    **wanted: Any,
) -> None:
    """Say what a run of PROGRAM would do, and run nothing.

    Which replica sits on which device, or why the run would wait; and from the program's first steps, on simulated
    devices of a worker: batches, variables, exchanges with their bytes, memory per device. Exits with 1 where the
    program could not be looked at.

    With --on the program runs on shapes, on the devices of a TPU slice or on GPUs that need not be there, and the
    chip's own compiler says what its steps need and whether they fit; exits with 1 where they don't.
    """
    from drumline.program import PackedProgram

    with connect(url) as client:
        terms = {"steps": steps, "limit_s": probe_limit, "on": on, "batch_parameter": batch_parameter}
        made = make(client, PackedProgram.of(program), wanted, probe=not no_probe, **terms)
    show(made, as_json=as_json)
    raise SystemExit(exit_code(made))


def make(client: "Client", packed: "PackedProgram", wanted: dict[str, Any], **terms: Any) -> "Plan":
    """Makes the plan and waits for it, saying so on stderr. Ctrl-C ends the probe."""
    made = client.plan(packed, wait=False, **terms, **arguments(packed, wanted))
    if made.pending:
        on = made.details.on
        doing = "looking at the program's first steps" if on is None else f"compiling for {on}"
        click.echo(f"{doing} on {made.details.probe.host_name} ...", err=True)
    told: set[str] = set()

    def tell(plan: "Plan") -> None:
        message = plan.details.probe.message
        if plan.pending and message and message not in told:
            told.add(message)
            click.echo(message, err=True)

    try:
        return made.wait(on_look=tell)
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

    program = made.details.program
    if program is not None and program.chips is not None and program.chips.verdict == "does_not_fit":
        return RUN_FAILED
    return RUN_FAILED if made.details.probe.state in (ProbeState.FAILED, ProbeState.BUSY) else OK
