"""The command line of a program that runs by itself: flags from `main`'s signature, then strategy and devices."""

import inspect
import json
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import click
from pydantic import JsonValue

from drumline import program
from drumline._flags import KeyValue
from drumline._validation import EXECUTORS, KINDS, parse_strategy
from drumline.checkpoints.managers import LocalManager, RunCheckpoints
from drumline.contracts.api import ProgramEntrypoint, ProgramParameter
from drumline.contracts.problems import ProblemCode
from drumline.contracts.spec import MAX_REPLICAS, CheckpointSpec, Platform
from drumline.distribute import Strategy
from drumline.distribute.errors import DistributeError
from drumline.errors import DrumlineError, ParameterError
from drumline.job import RunStopping
from drumline.local.local_run import LocalRun
from drumline.local.results import json_result
from drumline.local.stop_request import StopBetweenSteps, StopRequest, on_sigterm
from drumline.local.strategies import ObservedStrategy, build_strategy, choose_devices, devices_per_replica
from drumline.progress import Progress, open_progress

STOPPED_EXIT_CODE = 128 + signal.SIGTERM


def run(main: Callable[..., Any]) -> None:
    """Runs `main` on this machine with the flags of the command line, prints its result as JSON, and exits.

    Progress goes to stderr, the result to stdout. Exit code 0 if `main` returned, 1 if it raised or returned something
    that JSON cannot hold, 2 for wrong flags, 143 if it stopped because it was asked to (SIGTERM).
    """
    try:
        _command(main, _read_entrypoint(main)).main()
    except (DrumlineError, DistributeError) as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(2)


def _read_entrypoint(main: Callable[..., Any]) -> ProgramEntrypoint:
    """What a server would read from the source of `main`, so that flags and checks are the same."""
    file = Path(inspect.getfile(main))
    return program.find(program.entrypoints(file.read_bytes(), "program", file.name), f"program:{main.__name__}")


def _command(main: Callable[..., Any], entrypoint: ProgramEntrypoint) -> click.Command:
    shared = run_options()

    def execute(**values: Any) -> None:
        settings = {str(option.name): values.pop(str(option.name)) for option in shared}
        given = {name: value for name, value in values.items() if value is not None}
        sys.exit(_execute(main, program.check_parameters(entrypoint, given), settings))

    options = [*parameter_options(entrypoint), *shared]
    return click.Command(Path(sys.argv[0]).name, params=[*options], callback=execute, help=inspect.getdoc(main))


def _execute(main: Callable[..., Any], parameters: dict[str, JsonValue], settings: dict[str, Any]) -> int:
    options = dict(settings["strategy_option"])
    if settings["executor"] != "auto":
        options["executor"] = settings["executor"]
    spec = parse_strategy(settings["strategy"], options)
    count = settings["replicas"] * devices_per_replica(spec)
    strategy = build_strategy(spec, choose_devices(count, settings["platform"]))
    progress = open_progress()
    progress.line(_heading(spec.kind, strategy))
    policy = CheckpointSpec(every_steps=settings["checkpoint_every"])
    manager = LocalManager(settings["checkpoint_dir"], policy, progress.line)
    stop_request = StopRequest()
    observed = ObservedStrategy(strategy, StopBetweenSteps(stop_request))
    checkpoints = RunCheckpoints(manager, policy, observed)
    run = LocalRun(_with_defaults(main, parameters), strategy, progress, checkpoints, stop_request)
    on_sigterm(run.stop_request.request)
    try:
        return _finish(main, run, parameters, progress)
    finally:
        progress.close()
        manager.close()


def _finish(main: Callable[..., Any], run: LocalRun, parameters: dict[str, JsonValue], progress: Progress) -> int:
    try:
        result = json_result(main(run, **parameters)).value
        run.show_last()
    except RunStopping:
        progress.line("stopped on request")
        return STOPPED_EXIT_CODE
    except Exception as error:  # noqa: BLE001  whatever the program raises: shown as its own, and told by the exit code
        progress.line("".join(traceback.format_exception(_without_our_frames(error))).rstrip())
        return 1
    progress.close()
    click.echo(json.dumps(result))
    return 0


def _heading(kind: str, strategy: Strategy) -> str:
    count, devices = len(strategy.replica_devices), sum(map(len, strategy.replica_devices))
    first = strategy.devices[0]
    device = "simulated CPU device" if first.platform == "cpu" else first.device_kind
    return f"{kind}: {count} replica{'s' * (count > 1)} on {devices} {device}{'s' * (devices > 1)}"


def _with_defaults(main: Callable[..., Any], parameters: dict[str, JsonValue]) -> dict[str, JsonValue]:
    bound = inspect.signature(main).bind(None, **parameters)
    bound.apply_defaults()
    _, *named = bound.arguments.items()
    return dict(named)


def _without_our_frames(error: Exception) -> Exception:
    """The traceback from the program's own first frame on."""
    frame = error.__traceback__
    return error.with_traceback(frame.tb_next if frame and frame.tb_next else frame)


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
