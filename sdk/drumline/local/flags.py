"""Flags of a local run: one for each parameter of `main`, and the shared ones."""

import json
from pathlib import Path
from typing import Any, get_args

import click

from drumline.cli.options import KeyValue
from drumline.contracts.api import ProgramEntrypoint, ProgramParameter
from drumline.contracts.problems import ProblemCode
from drumline.contracts.spec import MAX_REPLICAS, Platform
from drumline.errors import ParameterError
from drumline.strategy_options import EXECUTORS, KINDS


class _Json(click.ParamType[Any]):
    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return json.loads(value)
        except json.JSONDecodeError as error:
            self.fail(f"{value!r} is not JSON: {error}", param, ctx)


_TYPES: dict[str, click.ParamType[Any]] = {
    "int": click.INT,
    "float": click.FLOAT,
    "str": click.STRING,
    "bool": click.BOOL,
    "list": _Json(),
    "json": _Json(),
}


def parameter_options(entrypoint: ProgramEntrypoint) -> list[click.Option]:
    """`--learning-rate FLOAT` for each parameter. ParameterError for one that has the name of a shared flag."""
    taken = {option.name for option in run_options()}
    for parameter in entrypoint.parameters:
        if parameter.name in taken:
            message = f"main's parameter {parameter.name!r} has the name of a flag of drumline.local; rename it"
            raise ParameterError(ProblemCode.BAD_PARAMETER, message, parameter.name)
    return [_option(parameter) for parameter in entrypoint.parameters]


def run_options() -> list[click.Option]:
    """The flags that choose strategy and devices."""
    return [
        click.Option(["--replicas"], type=click.IntRange(1, MAX_REPLICAS), default=1, show_default=True),
        click.Option(["--strategy"], type=click.Choice(KINDS), default="mirrored", show_default=True),
        click.Option(["-s", "--strategy-option"], type=KeyValue(), multiple=True, help="Such as batch=per_replica."),
        click.Option(["--executor"], type=click.Choice(EXECUTORS), default="auto", show_default=True),
        click.Option(["--platform"], type=click.Choice(get_args(Platform)), default="any", show_default=True),
        click.Option(
            ["--checkpoint-dir"],
            type=click.Path(file_okay=False, path_type=Path),
            help="Where run.checkpoint writes and run.restore reads; without it checkpoints end with the process.",
        ),
        click.Option(
            ["--checkpoint-every"],
            type=click.IntRange(1, 2**53 - 1),
            help="Save when so many steps have passed since the last save; without it each run.checkpoint saves.",
        ),
    ]


def _option(parameter: ProgramParameter) -> click.Option:
    flag = f"--{parameter.name.replace('_', '-').lower()}"
    shown = f"default: {json.dumps(parameter.default)}" if parameter.default is not None else ""
    # A flag left out is None, and main's own default holds; click takes an explicit None for a value of a required one.
    absent: dict[str, Any] = {"required": True} if parameter.required else {"default": None}
    if parameter.type == "bool":
        return click.Option([f"{flag}/--no-{flag[2:]}", parameter.name], help=shown, **absent)
    return click.Option([flag, parameter.name], type=_TYPES[parameter.type], help=shown, **absent)
