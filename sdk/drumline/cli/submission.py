"""Options of the commands that submit a program, and what they mean for the client."""

from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any

import click

from drumline._flags import Duration, KeyValue
from drumline.cli.options import Command, retries_of, retry_options, spread_option

if TYPE_CHECKING:
    from drumline.contracts.spec import RecordSpec
    from drumline.program import PackedProgram

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
    from drumline.cli.parameters import parse_parameters
    from drumline.program import find

    return parse_parameters(find(packed.entrypoints, entrypoint), texts) if texts else {}
