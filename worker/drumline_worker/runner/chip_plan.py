"""A probe for chips that are not there: the program runs on shapes, and the chips' own compiler gets its steps."""

import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
from pydantic import JsonValue

import drumline.distribute as dist
from drumline.contracts.chips import BatchSearch
from drumline.contracts.plans import PlanWarning, ProbedProgram
from drumline.contracts.spec import CentralStorageSpec, OneDeviceSpec, StrategySpec
from drumline.distribute.errors import NotPlannableError
from drumline.distribute.planning import Chips, Unread, add_gpu_compiler, compiler_environment, run_on_shapes
from drumline.errors import UnsupportedStrategyError
from drumline.job import RunStopping, Scalar
from drumline.local import build_strategy
from drumline.local.local_run import check_name, check_scalar, example_numbers, whole_number
from drumline.local.stop_request import StopRequest
from drumline.media import Media, Summary
from drumline_worker.host.rundir import ChipOrder, StartOrder
from drumline_worker.runner.chip_observer import ChipObserver
from drumline_worker.runner.program import BadProgramError, Main, with_defaults


class _UnreadSummary(Summary):
    """Takes whatever is set: a number that is only kept is none that a plan needs."""

    def _set(self, values: Mapping[str, Any]) -> None:  # Any: as Summary
        return


class ShapesRun:
    """A `drumline.job.RunContext` for a program on shapes: it counts steps, and keeps nothing."""

    def __init__(self, strategy: dist.Strategy, parameters: Mapping[str, JsonValue], observer: ChipObserver) -> None:
        self._strategy = strategy
        self._parameters = MappingProxyType(dict(parameters))
        self._observer = observer

    @property
    def id(self) -> str:
        """`plan`: there is no run."""
        return "plan"

    @property
    def parameters(self) -> Mapping[str, JsonValue]:
        """What `main` was called with, defaults included."""
        return self._parameters

    @property
    def strategy(self) -> dist.Strategy:
        """The strategy on the slice's devices."""
        return self._strategy

    @property
    def should_stop(self) -> bool:
        """Never: the plan stops the program itself."""
        return False

    @property
    def next_step(self) -> int:
        """0: a plan resumes nothing."""
        return 0

    @property
    def summary(self) -> Summary:
        """As `RunContext.summary`; there are no values."""
        return _UnreadSummary()

    def log(self, *, step: int, **values: Scalar | Media) -> None:
        """As `RunContext.log`; there are no values."""
        for name, value in values.items():
            if isinstance(value, Media):
                check_name(name)
            else:
                check_scalar(name, value)
        self._observer.step_named(whole_number("run.log", "step", step))

    def save_artifact(
        self,
        path: str | os.PathLike[str],
        name: str | None = None,
        *,
        kind: str | None = None,
        metadata: Mapping[str, Any] | None = None,  # Any: as RunContext has it
    ) -> bool:
        """Keeps nothing, and looks at no file: there are no values that a program could have written."""
        return False

    def set_total_steps(self, total: int) -> None:
        """As `RunContext.set_total_steps`."""
        self._observer.total_told(whole_number("run.set_total_steps", "total", total))

    def describe_examples(self, *, tokens: float | None = None, flops_per_example: float | None = None) -> None:
        """As `RunContext.describe_examples`; a plan has no speed."""
        example_numbers(tokens, flops_per_example)

    def checkpoint(self, state: Any, *, step: int) -> bool:
        """Saves nothing. Any: a pytree."""
        self._observer.step_named(whole_number("run.checkpoint", "step", step))
        return False

    def restore(self, state: Any = None) -> Any:
        """`state` as it is: a plan begins at the beginning."""
        return state


def prepare_compiler(order: ChipOrder) -> Chips:
    """The devices of the chips, in a process whose JAX has not started. Raises the engine's typed errors."""
    if Path(order.library).is_dir():
        add_gpu_compiler(Path(order.library))
    else:
        os.environ.update(compiler_environment(Path(order.library)))
    jax.config.update("jax_platforms", "cpu")
    dist.set_cpu_devices(1)
    return Chips.of(order.on)


def plan_on_chips(main: Main, program: Path, order: StartOrder, chips: Chips) -> ProbedProgram:
    """Runs ``main`` on shapes with the slice's devices, and tells what their compiler says.

    What the program raises itself passes through; where it stops for want of a number is part of the plan.
    """
    assert order.chips is not None
    assert order.probe_steps is not None
    stop_request = StopRequest()
    observer = ChipObserver(order.probe_steps, stop_request)
    refused: list[str] = []
    parameters = with_defaults(main, order.claimed.parameters)

    def run() -> None:
        strategy = _strategy(order.claimed.strategy, chips)
        refused.extend(refused_over_hosts(strategy))
        strategy.observe(observer, reductions_every=1)
        try:
            main(ShapesRun(strategy, parameters, observer), **order.claimed.parameters)
        except RunStopping:
            if not observer.has_compiled:
                raise

    batch = _search_of(order.chips.batch_parameter, parameters)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default", dist.errors.DistributeWarning)
        stop = run_on_shapes(run, chips.devices, program, Unread([ShapesRun.log], main))
    found = observer.found_on(
        chips, order.chips.compiler, stop, batch, caught=caught, ended=not stop_request.is_requested
    )
    told = tuple(PlanWarning(code="engine", message=text[:2_000]) for text in refused)
    return found.model_copy(update={"warnings": (*told, *found.warnings)[:50]})


def refused_over_hosts(strategy: dist.Strategy) -> Iterator[str]:
    """What can be compiled as one program of all devices, and a run of several processes is refused for."""
    for replica, own in enumerate(strategy.replica_devices):
        processes = sorted({device.process_index for device in own})
        if len(processes) > 1:
            yield (
                f"replica {replica} has devices of hosts {', '.join(map(str, processes))}, and a run refuses a replica "
                "over several processes: choose a computation_shape that fits one host"
            )
            return


def _strategy(spec: StrategySpec, chips: Chips) -> dist.Strategy:
    """On all devices of the slice; one_device on its first."""
    if isinstance(spec, CentralStorageSpec) and spec.parameter_device not in (None, "cpu:0"):
        raise NotPlannableError(
            f"its variables live on {spec.parameter_device}: only the host, cpu:0, is planned as a parameter device"
        )
    executor = getattr(spec, "executor", "auto")
    if executor in ("mpmd", "pmap"):
        raise NotPlannableError(f"executor={executor!r} is asked for, and spmd is what is planned: leave it out")
    try:
        return build_strategy(spec, chips.devices[:1] if isinstance(spec, OneDeviceSpec) else chips.devices)
    except (dist.errors.DistributeError, UnsupportedStrategyError) as error:
        raise BadProgramError(f"the strategy {spec.kind} can't be built on {chips.known}: {error}") from error


def _search_of(name: str | None, parameters: Mapping[str, JsonValue]) -> BatchSearch | None:
    if name is None:
        return None
    value = parameters.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        known = ", ".join(parameters) or "none"
        raise BadProgramError(
            f"the batch parameter {name!r} must be a parameter of the program that is a whole number from 1; it is "
            f"{value!r}, and the program has: {known}"
        )
    return BatchSearch(parameter=name, value=value)
