"""The program's function, as it is found in its bundle, and the RunContext that it sees on a worker."""

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import JsonValue

import drumline.distribute as dist
from drumline.checkpoints.managers import RunCheckpoints
from drumline.checkpoints.store import Committed
from drumline.contracts.spent import Spent
from drumline.contracts.worker_api import ResumePoint
from drumline.job import Scalar
from drumline.local.local_run import example_numbers, sort_out, whole_number
from drumline.local.stop_request import StopRequest
from drumline.media import Media, Summary
from drumline_worker.host.tally import PhaseTimes
from drumline_worker.runner.artifacts import ArtifactReports
from drumline_worker.runner.channel import Channel, Ticker
from drumline_worker.runner.gang_checks import Arrivals
from drumline_worker.runner.runner_telemetry import Telemetry

Main = Callable[..., Any]  # Any: whatever a program takes and returns


class BadProgramError(Exception):
    """The bundle has no such module or function, or the function does not take what is asked of it.

    The message is for the user, and says all: where it was raised is ours.
    """


def load_main(program: Path, entrypoint: str) -> Main:
    """Imports the module from the bundle and returns the function.

    Raises BadProgramError naming what is missing; whatever the module itself raises goes through.
    """
    module_name, _, function_name = entrypoint.partition(":")
    sys.path.insert(0, str(program))
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and module_name.startswith(error.name):
            raise BadProgramError(f"the bundle has no module {error.name!r} (entrypoint {entrypoint})") from None
        raise
    file = getattr(module, "__file__", None)
    if file is None or not Path(file).resolve().is_relative_to(program.resolve()):
        raise BadProgramError(f"{module_name!r} is also an installed module; rename the file in the bundle")
    main = getattr(module, function_name, None)
    if not callable(main):
        raise BadProgramError(f"module {module_name!r} has no function {function_name!r}")
    return main  # type: ignore[no-any-return] # getattr of a module; callable() proved what can be proved


def with_defaults(main: Main, parameters: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Every parameter that the call will have, by name. Raises BadProgramError when `main` does not take them."""
    try:
        bound = inspect.signature(main).bind(None, **parameters)
    except (TypeError, ValueError) as error:
        raise BadProgramError(f"{main.__name__} can't be called with these parameters: {error}") from None
    bound.apply_defaults()
    _, *named = bound.arguments.items()
    return dict(named)


class WorkerRun:
    """A `drumline.job.RunContext` over the socket to the shim."""

    def __init__(  # noqa: PLR0913 - keywords, each a part of its process
        self,
        run_id: str,
        strategy: dist.Strategy,
        telemetry: Telemetry,
        *,
        ticker: Ticker,
        checkpoints: RunCheckpoints,
        stop_request: StopRequest,
        times: PhaseTimes,
        artifacts: ArtifactReports,
        arrivals: Arrivals | None = None,
    ) -> None:
        self._id = run_id
        self._artifacts = artifacts
        self._strategy = strategy
        self._telemetry = telemetry
        self._ticker = ticker
        self._checkpoints = checkpoints
        self._stop_request = stop_request
        self._times = times
        self._arrivals = arrivals
        self._parameters: Mapping[str, JsonValue] = MappingProxyType({})
        self._summary = Summary(telemetry.summary)

    @property
    def id(self) -> str:
        """The run's id."""
        return self._id

    @property
    def parameters(self) -> Mapping[str, JsonValue]:
        """What `main` was called with, defaults included."""
        return self._parameters

    @property
    def strategy(self) -> dist.Strategy:
        """The strategy on the placed devices."""
        return self._strategy

    @property
    def should_stop(self) -> bool:
        """Whether the run was asked to stop."""
        return self._stop_request.is_requested

    @property
    def summary(self) -> Summary:
        """As `RunContext.summary`."""
        return self._summary

    def log(self, *, step: int, **values: Scalar | Media) -> None:
        """As `RunContext.log`; the values are read from their devices on another thread."""
        self._stop_request.raise_if_due()
        step = whole_number("run.log", "step", step)
        scalars, media = sort_out(values)
        if media:
            self._telemetry.check_media(media)
        self._ticker.advance()
        for name, taken in media.items():
            self._telemetry.media(name, step, taken)
        for name, value in scalars.items():
            self._telemetry.point(name, step, value)
        self._telemetry.name_step(step)

    def save_artifact(
        self,
        path: str | os.PathLike[str],
        name: str | None = None,
        *,
        kind: str | None = None,
        metadata: Mapping[str, Any] | None = None,  # Any: as RunContext has it
    ) -> bool:
        """As `RunContext.save_artifact`; copied into the member's directory, from where the agent sends it."""
        self._ticker.advance()
        return self._artifacts.save(path, name, kind, metadata)

    def set_total_steps(self, total: int) -> None:
        """As `RunContext.set_total_steps`."""
        self._telemetry.total_steps(whole_number("run.set_total_steps", "total", total))

    def describe_examples(self, *, tokens: float | None = None, flops_per_example: float | None = None) -> None:
        """As `RunContext.describe_examples`."""
        self._telemetry.describe_examples(*example_numbers(tokens, flops_per_example))

    def checkpoint(self, state: Any, *, step: int) -> bool:
        """As `RunContext.checkpoint`; the server learns of it once it is committed. Any: a pytree."""
        stopping, step = self._stop_request.is_requested, whole_number("run.checkpoint", "step", step)
        self._telemetry.name_step(step)
        with self._times.during(Spent.CHECKPOINT):
            saved = self._checkpoints.offer(state, step, stopping=stopping)
        self._stop_request.note_offer(saved_in_stop=stopping)
        return saved

    def restore(self, state: Any = None) -> Any:
        """As `RunContext.restore`. Any: the pytree that was saved."""
        with self._times.during(Spent.CHECKPOINT):
            restored = self._checkpoints.restore(state)
        self._telemetry.note_restore(self._checkpoints.next_step, self._strategy.step)
        return restored

    @property
    def next_step(self) -> int:
        """As `RunContext.next_step`."""
        return self._checkpoints.next_step

    def start(self, parameters: Mapping[str, JsonValue]) -> None:
        """The parameters are known: `main` is about to be called."""
        self._parameters = MappingProxyType(dict(parameters))

    def close(self) -> None:
        """Sends what was logged; call it once, when the program has ended."""
        self._ticker.enter("finishing")
        self._times.enter(Spent.ENDING)
        if self._arrivals is not None:
            self._arrivals.close()
        self._telemetry.close()


class CheckpointEvents:
    """`drumline.checkpoints.managers.CheckpointReports` as events of the run."""

    def __init__(self, channel: Channel, telemetry: Telemetry) -> None:
        self._channel = channel
        self._telemetry = telemetry

    def flush(self) -> None:
        """Returns once all that was recorded before is on its way."""
        self._telemetry.flush()

    def report_saved(self, committed: Committed) -> None:
        """The server may offer it from now on."""
        self._channel.send(
            "checkpoint",
            step=committed.key.step,
            path=committed.key.path,
            size_bytes=committed.size_bytes,
            manifest=committed.manifest,
        )

    def report_restored(self, point: ResumePoint | None, damaged: Sequence[str]) -> None:
        """Where the program resumes, and what it could not resume from."""
        where = {"checkpoint": point.checkpoint, "step": point.step} if point is not None else {}
        self._channel.send("restored", **where, damaged=list(damaged))
