"""The life of a runner: prepare the process, start JAX on the assigned devices, call `main`, report its end."""

import faulthandler
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import jax
import numpy as np

import drumline.distribute as dist
from drumline.checkpoints.managers import RegisteredManager, RunCheckpoints, open_manager
from drumline.contracts.reasons import EndReason
from drumline.contracts.spent import Spent
from drumline.contracts.worker_api import AssignedDevice
from drumline.errors import UnsupportedStrategyError
from drumline.job import RunStopping
from drumline.local import build_strategy, json_result, on_sigterm
from drumline.local.stop_request import StopRequest
from drumline.local.strategies import ObservedStrategy
from drumline_worker.host.messages import STACK_SIGNAL
from drumline_worker.host.rundir import ChipOrder, RunDirectory, StartOrder
from drumline_worker.host.tally import Tally
from drumline_worker.runner.artifacts import ArtifactReports
from drumline_worker.runner.channel import Channel, Ticker
from drumline_worker.runner.chip_plan import plan_on_chips, prepare_compiler
from drumline_worker.runner.devices import (
    DevicesUnavailableError,
    RendezvousError,
    claim_devices,
    is_peer_loss,
    leave,
    memory_of,
)
from drumline_worker.runner.gang_checks import DivergedError, DivergenceCheck, open_arrivals, open_check
from drumline_worker.runner.gang_watch import HEARD_S, GangWatch, find_difference, gang_store
from drumline_worker.runner.observer import Followers, RunObserver, TracingObserver
from drumline_worker.runner.probe_observer import ProbeObserver
from drumline_worker.runner.program import BadProgramError, CheckpointEvents, WorkerRun, load_main, with_defaults
from drumline_worker.runner.reports import ReductionReports
from drumline_worker.runner.runner_telemetry import Telemetry
from drumline_worker.runner.step_traces import ProfileReports, StepTraces
from drumline_worker.runner.throughput import Meter, watch_compilation
from drumline_worker.runner.trace_reading import TracedDevice

_UNFINISHED_S = 0.25
"""An unfinished line waits so long in the interpreter at most."""
MAX_MESSAGE_CHARS = 4_000


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What the program runs with; a probe, and a watch over its gang, where there is one."""

    run: WorkerRun
    probe: ProbeObserver | None
    watch: GangWatch | None
    check: DivergenceCheck | None


def run_member(directory: RunDirectory, order: StartOrder, link: socket.socket, stacks: int, tally: Tally) -> int:
    """Runs the program and returns the exit code of this process; its stacks go to `stacks` when the shim asks.

    What it logs is counted in `tally`.

    0 only after `main` returned something that JSON holds; 1 after a failure that was reported to the shim.
    """
    _prepare_process(directory, stacks)
    channel = Channel(link, stacks)
    channel.send("state", phase="loading")
    if order.chips is not None:
        return _plan_on_chips(directory, order, order.chips, channel)
    try:
        prepared = _prepare_run(directory, order, channel, tally)
    except (DevicesUnavailableError, RendezvousError, UnsupportedStrategyError, RuntimeError) as error:
        sys.stderr.write(f"drumline: {error}\n")
        return _fail(
            channel, _start_reason(error), str(error) if isinstance(error, RendezvousError) else _summary(error)
        )
    tally.times.enter(Spent.OWN_CODE)
    return _run_program(directory, order, channel, prepared)


def _start_reason(error: Exception) -> EndReason:
    if isinstance(error, RendezvousError):
        return error.reason
    return EndReason.BAD_PROGRAM if isinstance(error, UnsupportedStrategyError) else EndReason.START_FAILED


def _prepare_process(directory: RunDirectory, stacks: int) -> None:
    scratch = str(directory.scratch)
    os.umask(0o077)
    os.chdir(scratch)
    os.environ.update(HOME=scratch, TMPDIR=scratch, PWD=scratch)
    sys.stdout, sys.stderr = streams = _text_to(1), _text_to(2)
    threading.Thread(target=_flush_forever, args=(streams,), name="drumline-output", daemon=True).start()
    faulthandler.enable(file=2)
    faulthandler.register(STACK_SIGNAL, file=stacks)
    np.random.seed()


def _text_to(fd: int) -> TextIO:
    """Line by line, so that the log is live; no character can make print fail. The launcher's stream was another's."""
    return open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _flush_forever(streams: Sequence[TextIO]) -> None:
    """Sends unfinished lines too: what the interpreter holds is lost with a program that is killed.

    Without a buffer a line of `print` would be two writes, between which those of other threads fall.
    """
    forking = threading.Lock()  # a child of the program would inherit the lock of a stream that is being written
    os.register_at_fork(before=forking.acquire, after_in_parent=forking.release, after_in_child=forking.release)
    while True:
        time.sleep(_UNFINISHED_S)
        for stream in streams:
            with forking, suppress(ValueError, OSError):  # the program may have closed it
                stream.flush()


def _prepare_run(directory: RunDirectory, order: StartOrder, channel: Channel, tally: Tally) -> _Prepared:
    claimed = order.claimed
    ticker, devices = _come_together(order, channel, tally)
    strategy = build_strategy(claimed.strategy, [device for _, device in devices])
    stop_request, probe = StopRequest(), None
    watch, check, arrivals = _watch_gang(order, channel), None, None
    if order.probe_steps is None:
        telemetry = _open_telemetry(order, channel, tally, stop_request, devices)
        check = open_check(strategy, claimed, _device_ids(devices))
        arrivals = open_arrivals(claimed, channel)
        observer = (RunObserver if claimed.profile_every is None else TracingObserver)(
            channel,
            telemetry,
            ticker,
            _device_ids(devices),
            step_began=stop_request.step_began,
            tally=tally,
            followers=Followers(watch, check, arrivals),
        )
        if isinstance(observer, TracingObserver) and claimed.profile_every is not None:
            _set_up_traces(observer, claimed.profile_every, channel, telemetry, _traced_devices(devices))
        observed = ObservedStrategy(strategy, observer, every=_intervals(order))
    else:
        probe = ProbeObserver([device.id for _, device in devices], order.probe_steps, stop_request)
        telemetry = Telemetry(channel, stop_request.raise_if_forced, tally, probe)
        observed = ObservedStrategy(strategy, probe, every=(1, None))
    manager = _open_manager(order, channel, telemetry, ticker, stop_request)
    checkpoints = RunCheckpoints(manager, claimed.checkpoint, observed)
    run = WorkerRun(
        claimed.run,
        strategy,
        telemetry,
        ticker=ticker,
        checkpoints=checkpoints,
        stop_request=stop_request,
        times=tally.times,
        artifacts=ArtifactReports(channel, directory.artifacts, claimed.artifact_bytes, ticker.waits),
        arrivals=arrivals,
    )
    return _Prepared(run, probe, watch, check)


def _intervals(order: StartOrder) -> tuple[int, int | None]:
    """Every how many calls reductions are told, and every how many those of large arrays."""
    return order.claimed.record.reductions_every, order.claimed.large_reductions_every


def _open_telemetry(
    order: StartOrder,
    channel: Channel,
    tally: Tally,
    stop_request: StopRequest,
    devices: list[tuple[AssignedDevice, jax.Device]],
) -> Telemetry:
    claimed = order.claimed
    meter = Meter(
        lambda: tally.times.spent_s(Spent.INPUT),
        is_told=claimed.takes_throughput,
        samples=claimed.profile_every is not None,
    )
    profiles = ProfileReports(channel, _traced_devices(devices), claimed.rendezvous.rank)
    reports = ReductionReports(channel, takes_strips=claimed.takes_strips, takes_whole=claimed.takes_whole)
    return Telemetry(channel, stop_request.raise_if_forced, tally, meter=meter, profiles=profiles, reports=reports)


def _traced_devices(devices: list[tuple[AssignedDevice, jax.Device]]) -> list[TracedDevice]:
    return [
        TracedDevice(device.id, device.local_hardware_id, assigned.device)
        for assigned, device in devices
        if device.process_index == jax.process_index() and device.local_hardware_id is not None
    ]


def _set_up_traces(
    observer: TracingObserver, every: int, channel: Channel, telemetry: Telemetry, devices: list[TracedDevice]
) -> None:
    observer.traces = StepTraces(
        every,
        channel,
        on_traced=telemetry.traced,
        on_busy=telemetry.tracing_is_busy,
        on_begun=telemetry.tracing,
        place=Path.cwd(),  # as long as the program has not begun, that is the scratch directory
        devices=devices,
    )


def _come_together(
    order: StartOrder, channel: Channel, tally: Tally
) -> tuple[Ticker, list[tuple[AssignedDevice, jax.Device]]]:
    """The devices, once all of the gang have theirs."""
    is_alone = order.claimed.rendezvous.size == 1
    ticker = Ticker(channel, "own_code" if is_alone else "rendezvous")
    ticker.start()
    watch_compilation(tally.times)
    with tally.times.during(Spent.LAUNCH if is_alone else Spent.RENDEZVOUS):
        devices = claim_devices(order)
    ticker.watch_memory(partial(memory_of, devices))
    ticker.enter("own_code")
    return ticker, devices


def _open_manager(
    order: StartOrder, channel: Channel, telemetry: Telemetry, ticker: Ticker, stop_request: StopRequest
) -> RegisteredManager:
    """Of the run's checkpoints; it hears from now on which of them the server knows."""

    def on_wait() -> None:
        ticker.waits()
        stop_request.raise_if_forced()

    manager = open_manager(Path(order.checkpoints), order.claimed, CheckpointEvents(channel, telemetry), on_wait)
    on_sigterm(stop_request.request)
    channel.listen(stop_request.request, manager.note_registered)
    return manager


def _watch_gang(order: StartOrder, channel: Channel) -> GangWatch | None:
    if order.claimed.rendezvous.size == 1:
        return None

    def end(message: str) -> None:
        """On the watch's thread: the program's own waits for the others, and will for ever."""
        sys.stderr.write(f"drumline: {message}\n")
        _fail(channel, EndReason.PROGRAMS_DIFFER, message)
        # For what the program has printed; and with rank 0 goes the service, through which the others hear of it.
        time.sleep(_UNFINISHED_S + (HEARD_S if order.claimed.rendezvous.rank == 0 else 0.0))
        os._exit(1)

    watch = GangWatch(gang_store(), order.claimed.rendezvous, end)
    watch.start()
    return watch


def _plan_on_chips(directory: RunDirectory, order: StartOrder, wanted: ChipOrder, channel: Channel) -> int:
    """A probe for chips that are not there: no device, no telemetry, one result."""
    ticker = Ticker(channel, "own_code")
    ticker.start()
    on_sigterm(lambda: os._exit(1))  # the compiler answers SIGTERM with a stack, and there is nothing to save
    try:
        chips = prepare_compiler(wanted)
    except dist.errors.DistributeError as error:
        return _fail(channel, EndReason.START_FAILED, str(error))
    reason = EndReason.BAD_PROGRAM
    try:
        main = load_main(directory.program, order.claimed.entrypoint)
        channel.send("state", phase="running")
        reason = EndReason.PROGRAM_ERROR
        found = plan_on_chips(main, directory.program, order, chips)
    except BaseException as error:  # noqa: BLE001 - the program's own code runs; all it raises is told
        sys.stderr.write(_format_error(error, directory.program))
        return _fail(channel, reason, _summary(error))
    channel.send("state", phase="finishing")
    leave(order)  # before the result is told: a gang that fails while members leave has none
    channel.send("result", value=found.model_dump(mode="json"), not_finite={})
    return 0


def _device_ids(devices: list[tuple[AssignedDevice, jax.Device]]) -> dict[int, str]:
    return {device.id: assigned.device for assigned, device in devices}


def _run_program(directory: RunDirectory, order: StartOrder, channel: Channel, prepared: _Prepared) -> int:
    run, probe, watch = prepared.run, prepared.probe, prepared.watch
    try:
        main = load_main(directory.program, order.claimed.entrypoint)
        parameters = with_defaults(main, order.claimed.parameters)
        main = main if probe is None else probe.wrap(main)
    except BaseException as error:  # noqa: BLE001 - the program's own code runs on import; all it raises is told
        return _report_error(error, run, channel, EndReason.BAD_PROGRAM, directory.program)
    run.start(parameters)
    channel.send("state", phase="running")
    try:
        returned = main(run, **order.claimed.parameters)
        if prepared.check is not None:
            prepared.check.finish()
    except DivergedError as error:
        return _report_error(error, run, channel, EndReason.DIVERGED, directory.program)
    except BaseException as error:  # noqa: BLE001 - whatever a program raises, SystemExit included
        if watch is not None and (difference := find_difference(error)) is not None:
            reason = EndReason.PROGRAM_ERROR if difference.have_failed else EndReason.PROGRAMS_DIFFER
            return _report_error(
                error, run, channel, reason, directory.program, describe=lambda: watch.describe(difference)
            )
        lost = order.claimed.rendezvous.size > 1 and is_peer_loss(error)
        reason = EndReason.PEER_LOST if lost else EndReason.PROGRAM_ERROR
        return _report_error(error, run, channel, reason, directory.program)
    if watch is not None:
        watch.returned()
    return _succeed(returned, run, channel, order)


def _succeed(returned: Any, run: WorkerRun, channel: Channel, order: StartOrder) -> int:
    try:
        result = json_result(returned)
    except (TypeError, ValueError) as error:
        run.close()
        sys.stderr.write(f"drumline: {error}\n")
        return _fail(channel, EndReason.BAD_RESULT, _summary(error))
    run.close()
    channel.send("state", phase="finishing")
    leave(order)  # before the result is told: a gang that fails while members leave has none
    channel.send("result", value=result.value, not_finite=result.not_finite)
    return 0


def _report_error(
    error: BaseException,
    run: WorkerRun,
    channel: Channel,
    reason: EndReason,
    program: Path,
    *,
    describe: Callable[[], str] | None = None,
) -> int:
    run.close()
    if isinstance(error, SystemExit):
        return _exit_code(error)
    if isinstance(error, RunStopping):
        channel.send("failed", reason=EndReason.CANCELLED, message="the program stopped when asked to")
        return 1
    if isinstance(error, MemoryError):
        reason = EndReason.OUT_OF_MEMORY
    sys.stderr.write(_format_error(error, program))
    return _fail(channel, reason, _summary(error) if describe is None else describe())


def _fail(channel: Channel, reason: EndReason, message: str) -> int:
    channel.send("failed", reason=reason, message=message[:MAX_MESSAGE_CHARS])
    return 1


def _exit_code(error: SystemExit) -> int:
    """As the interpreter does it: None is 0, text is printed and is 1."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    sys.stderr.write(f"{error.code}\n")
    return 1


def _format_error(error: BaseException, program: Path) -> str:
    """The traceback with the program's files named as in its bundle, as stacks of a hang name them.

    Of what is no fault within the program only the message.
    """
    if isinstance(error, BadProgramError):
        return f"drumline: {error}\n"
    return "".join(traceback.format_exception(_without_our_frames(error))).replace(f'"{program}/', '"')


def _without_our_frames(error: BaseException) -> BaseException:
    """The traceback from the program's own first frame on."""
    ours = error.__traceback__
    return error.with_traceback(ours.tb_next if ours and ours.tb_next else ours)


def _summary(error: BaseException) -> str:
    """The exception in one line that every store can hold: its type and the first line of what it says."""
    if isinstance(error, BadProgramError):
        return str(error)[:MAX_MESSAGE_CHARS].encode("utf-8", "replace").decode().replace("\x00", "\ufffd")
    told = traceback.TracebackException.from_exception(error)
    told.__notes__ = None  # JAX adds one about hidden frames to whatever passes through it
    lines = "".join(told.format_exception_only()).strip().splitlines()
    text = lines[-1 if isinstance(error, SyntaxError) else 0]
    return text[:MAX_MESSAGE_CHARS].encode("utf-8", "replace").decode().replace("\x00", "\ufffd")
