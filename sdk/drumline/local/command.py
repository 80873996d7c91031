"""The command line of a program that runs by itself: flags from `main`'s signature, then strategy and devices."""

import inspect
import json
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import jax
from pydantic import JsonValue

from drumline import program
from drumline.contracts.api import ProgramEntrypoint
from drumline.contracts.spec import CheckpointSpec
from drumline.distribute.errors import DistributeError
from drumline.errors import DrumlineError
from drumline.job import RunStopping
from drumline.local.checkpoints import Checkpoints, LocalShelf
from drumline.local.context import LocalRun
from drumline.local.devices import choose_devices
from drumline.local.flags import parameter_options, run_options
from drumline.local.results import json_result
from drumline.local.sigterm import on_sigterm
from drumline.local.stopping import StopBetweenSteps
from drumline.local.strategies import build_strategy
from drumline.progress import Progress, open_progress
from drumline.strategy_options import parse_strategy

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
    strategy = build_strategy(spec, choose_devices(settings["replicas"], settings["platform"]))
    progress = open_progress()
    progress.line(_heading(spec.kind, strategy.devices))
    policy = CheckpointSpec(every_steps=settings["checkpoint_every"])
    shelf = LocalShelf(settings["checkpoint_dir"], policy, progress.line)
    run = LocalRun(_with_defaults(main, parameters), strategy, progress, Checkpoints(shelf, policy, strategy))
    strategy.observe(StopBetweenSteps(run.stop_request))
    on_sigterm(run.stop_request.ask)
    try:
        return _finish(main, run, parameters, progress)
    finally:
        progress.close()
        shelf.close()


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


def _heading(kind: str, devices: Sequence[jax.Device]) -> str:
    count, first = len(devices), devices[0]
    device = "simulated CPU device" if first.platform == "cpu" else first.device_kind
    return f"{kind}: {count} replica{'s' * (count > 1)} on {count} {device}{'s' * (count > 1)}"


def _with_defaults(main: Callable[..., Any], parameters: dict[str, JsonValue]) -> dict[str, JsonValue]:
    bound = inspect.signature(main).bind(None, **parameters)
    bound.apply_defaults()
    _, *named = bound.arguments.items()
    return dict(named)


def _without_our_frames(error: Exception) -> Exception:
    """The traceback from the program's own first frame on."""
    frame = error.__traceback__
    return error.with_traceback(frame.tb_next if frame and frame.tb_next else frame)
