"""Commands that take a program: `drumline submit` and `drumline plan`, with the options of a submission.

What these mean for the client, and parameters typed on a command line, as values of the types that `main` declares.
"""

import json
from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

import click

from drumline._flags import Duration, KeyValue
from drumline.cli.options import (
    Command,
    anyway_option,
    connect,
    detach_option,
    json_option,
    json_text,
    logs_option,
    retries_of,
    retry_options,
    server_options,
    spread_option,
)

if TYPE_CHECKING:
    from drumline.client import Client
    from drumline.contracts.api import ProgramEntrypoint
    from drumline.contracts.spec import RecordSpec
    from drumline.program import PackedProgram
    from drumline.resources.plans import Plan


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("-n", "--replicas", type=int, default=1, show_default=True, help="How many replicas run in step."),
    click.option(
        "-p", "--parameter", "parameters", type=KeyValue(), multiple=True, help="A parameter of main; repeatable."
    ),
    click.option("--strategy", default="mirrored", show_default=True, help="Or central_storage, tpu, one_device."),
    click.option(
        "-s", "--strategy-option", "options", type=KeyValue(), multiple=True, help="Such as executor=mpmd; repeatable."
    ),
    click.option("--platform", default="any", show_default=True, help="any, cpu, gpu or tpu."),
    spread_option,
    click.option("--name", help="The job's name [default: the file's]."),
    click.option("--entrypoint", help="MODULE:FUNCTION, where a program has several."),
    click.option("--label", "labels", type=KeyValue(), multiple=True, help="A label of the run; repeatable."),
    retry_options,
    click.option(
        "--time-limit", type=Duration(), help="How long the run may take, such as 90s or 1h30m [default: no limit]."
    ),
    click.option(
        "--step-limit", type=Duration(), help="Time from one step to the next [default: 10 usual ones, at least 60s]."
    ),
    click.option(
        "--first-step-limit", type=Duration(), help="Time to the first step [default: 15m in which it does nothing]."
    ),
    click.option("--rendezvous-limit", type=Duration(), help="Time for a gang of several hosts to meet [default: 5m]."),
    click.option("--queue-limit", type=Duration(), help="How long the run may wait for devices [default: no limit]."),
    click.option("--grace", type=Duration(), default="30s", show_default=True, help="Time to return after a cancel."),
    click.option("--priority", type=int, default=0, show_default=True, help="Higher starts first."),
    click.option("--wait-for-devices", is_flag=True, help="Queue the run even if no host could hold it now."),
    click.option("--checkpoint-every", type=int, help="Save when so many steps passed [default: each run.checkpoint]."),
    click.option("--keep", type=int, default=2, show_default=True, help="How many of the newest checkpoints are kept."),
    click.option("--keep-every", type=int, help="Keep checkpoints of steps that this divides for good."),
    click.option(
        "--record",
        type=KeyValue(),
        multiple=True,
        help="How often to record, such as reductions_every=1 [default: 10]; repeatable.",
    ),
    click.option("--resume-from", metavar="ID", help="Go on from this checkpoint, or from the newest one of this run."),
)

_AS_GIVEN = ("name", "entrypoint", "replicas", "platform", "spread", "priority", "wait_for_devices", "resume_from")
"""Options that the client takes under the same name, as they are."""


def submission_options(command: Command) -> Command:
    """Everything that a submission says beside the program, as `wanted` keywords of the command."""
    return reduce(lambda inner, option: option(inner), reversed(_OPTIONS), command)


def arguments(packed: "PackedProgram", wanted: dict[str, Any]) -> dict[str, Any]:
    """The keywords of Client.submit."""
    from drumline._validation import parse_strategy, typed_errors
    from drumline.contracts.spec import CheckpointSpec, Limits

    with typed_errors():
        limits = Limits(
            run_s=wanted["time_limit"],
            queue_s=wanted["queue_limit"],
            step_s=wanted["step_limit"],
            first_step_s=wanted["first_step_limit"],
            rendezvous_s=wanted["rendezvous_limit"],
            grace_s=wanted["grace"],
        )
        checkpoint = CheckpointSpec(
            every_steps=wanted["checkpoint_every"], keep=wanted["keep"], keep_every_steps=wanted["keep_every"]
        )
    return {
        **{name: wanted[name] for name in _AS_GIVEN},
        "strategy": parse_strategy(wanted["strategy"], dict(wanted["options"])),
        "parameters": _parameters(packed, wanted["entrypoint"], dict(wanted["parameters"])),
        "labels": dict(wanted["labels"]),
        "retries": retries_of(wanted),
        "record": _record(dict(wanted["record"])),
        "checkpoint": checkpoint,
        "limits": limits,
    }


def _record(texts: dict[str, str]) -> "RecordSpec":
    from drumline._validation import typed_errors
    from drumline.contracts.problems import ProblemCode, nearest
    from drumline.contracts.spec import RecordSpec
    from drumline.errors import UnknownParameterError

    known = list(RecordSpec.model_fields)
    for name in texts:
        if name not in known:
            suggestion = nearest(name, known) or f"; choose from {', '.join(known)}"
            message = f"record has no setting {name!r}{suggestion}"
            raise UnknownParameterError(ProblemCode.UNKNOWN_PARAMETER, message, name)
    with typed_errors("record"):
        return RecordSpec.model_validate(texts)


def _parameters(packed: "PackedProgram", entrypoint: str | None, texts: dict[str, str]) -> dict[str, Any]:
    """Asks for the entrypoint only where there is something to read by its types."""
    from drumline.program import find

    return parse_parameters(find(packed.entrypoints, entrypoint), texts) if texts else {}


def parse_parameters(entrypoint: "ProgramEntrypoint", texts: Mapping[str, str]) -> dict[str, Any]:
    """Texts as values; what does not fit stays text, for the check to refuse by name."""
    return {name: parse_typed_value(entrypoint, name, text) for name, text in texts.items()}


def parse_typed_value(entrypoint: "ProgramEntrypoint", name: str, text: str) -> Any:  # Any: a JSON value
    """One text as the value of the parameter `name`."""
    if takes_text(entrypoint, name):
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def takes_text(entrypoint: "ProgramEntrypoint", name: str) -> bool:
    """Whether the parameter is text, or there is none of that name."""
    kinds = {parameter.name: parameter.type for parameter in entrypoint.parameters}
    return kinds.get(name) in (None, "str")


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
            made = make_plan(client, packed, wanted, on=on)
            if dry_run:
                show_plan(made, as_json=as_json)
                raise SystemExit(plan_exit_code(made))
            click.echo(str(made), err=True)
            run = made.submit(anyway=anyway)
        follow(run, detach=detach, as_json=as_json, with_logs=with_logs)


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
        made = make_plan(client, PackedProgram.of(program), wanted, probe=not no_probe, **terms)
    show_plan(made, as_json=as_json)
    raise SystemExit(plan_exit_code(made))


def make_plan(client: "Client", packed: "PackedProgram", wanted: dict[str, Any], **terms: Any) -> "Plan":
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


def show_plan(made: "Plan", *, as_json: bool) -> None:
    """Prints it on stdout."""
    click.echo(json_text(made.details) if as_json else str(made))


def plan_exit_code(made: "Plan") -> int:
    """1 where the probe found nothing that it should have."""
    from drumline.cli.exits import OK, RUN_FAILED
    from drumline.contracts.plans import ProbeState

    program = made.details.program
    if program is not None and program.chips is not None and program.chips.verdict == "does_not_fit":
        return RUN_FAILED
    return RUN_FAILED if made.details.probe.state in (ProbeState.FAILED, ProbeState.BUSY) else OK
