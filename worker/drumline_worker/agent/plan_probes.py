"""Probes for plans: a program's first steps on simulated devices, in the same isolation as a run, and nothing kept."""

import asyncio
import logging
import shutil
from contextlib import suppress
from functools import partial

from pydantic import ValidationError

from drumline.contracts.base import new_id
from drumline.contracts.events import LogEvent, ResultEvent, WorkerEvent
from drumline.contracts.heartbeats import TERM_BEFORE_TAKEOVER_S
from drumline.contracts.plans import PlanReport, ProbedProgram, ProbeFault, ProbeOrder
from drumline.contracts.reasons import EndReason
from drumline.contracts.spec import CheckpointSpec, Limits, RecordSpec
from drumline.contracts.worker_api import AssignedDevice, Claimed, HeartbeatReply, Rendezvous
from drumline.slices import KnownGpus, parse_chips
from drumline_worker.agent.agent_context import AgentContext
from drumline_worker.agent.api import Backoff, RefusedError, UnreachableError
from drumline_worker.agent.chip_plans import ChipPlanner, KeptPlans
from drumline_worker.agent.compilers import Compilers, add_command, other_jaxlib
from drumline_worker.agent.host_cache import BundleUnavailableError
from drumline_worker.agent.links import LaunchError, ShimLink
from drumline_worker.agent.maintenance import end_strays
from drumline_worker.host.messages import Ended, Stop, StopCause
from drumline_worker.host.rundir import ChipOrder, Ending, RunDirectory, StartOrder
from drumline_worker.host.spool import EVENT, SpoolReader
from drumline_worker.host.system import boot_id, boottime

_LOG = logging.getLogger(__name__)
MAX_PROBES = 1
"""At once on this host: a probe may take all its processors."""
_GRACE_S = 2.0
"""Past the limit, what the program did so far is still worth having."""
_LOST_S = 30.0
"""After which a probe that nobody looks after any more ends by itself, on the shim's own clock."""
_PROOF_S = 10.0
"""As long as a shim waits for its own children: nothing is deleted under a process that may still write."""
_OUTPUT_CHARS = 4_000


class PlanProbes:
    """The probes of this host. Everything they leave lies in one directory that each new agent empties."""

    def __init__(self, context: AgentContext) -> None:
        self._context = context
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._draining = False
        shutil.rmtree(context.layout.probes, ignore_errors=True)
        context.layout.probes.mkdir(mode=0o700)

    def plans(self) -> tuple[str, ...]:
        """For the heartbeat."""
        return tuple(self._tasks)

    def apply_reply(self, reply: HeartbeatReply) -> None:
        """Starts what is wanted and ends what is not wanted any more."""
        for plan in reply.unwanted_plans:
            if (task := self._tasks.get(plan)) is not None:
                _cancel(task)
        for order in reply.plans:
            if order.plan not in self._tasks:
                self._start(order)

    async def close(self) -> None:
        """Ends all probes; the server hears of it by their deadline."""
        self._draining = True
        for task in self._tasks.values():
            _cancel(task)
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))  # and no gather: who is cancelled in it cancels them again

    def _start(self, order: ProbeOrder) -> None:
        ending = [task for task in self._tasks.values() if task.cancelling()]
        is_busy = self._draining or len(self._tasks) - len(ending) >= MAX_PROBES
        work = self._refuse(order) if is_busy else self._probe_after(ending, order)
        task = asyncio.create_task(work, name=order.plan)
        self._tasks[order.plan] = task
        task.add_done_callback(lambda _: self._tasks.pop(order.plan, None))

    async def _refuse(self, order: ProbeOrder) -> None:
        await self._report(order, {"busy": True, "message": "This host probes another plan."})

    async def _probe_after(self, ending: list[asyncio.Task[None]], order: ProbeOrder) -> None:
        """Once nothing is left of probes that were cancelled: whoever cancelled one asks for the next at once."""
        if ending:
            await asyncio.wait(ending)
        await self._probe(order)

    async def _probe(self, order: ProbeOrder) -> None:
        try:
            answer = await (self._answer(order) if order.on is None else self._answer_on_chips(order, order.on))
        except (BundleUnavailableError, LaunchError, OSError) as error:
            answer = _fault("unavailable", f"The probe could not be started: {error}")
        except Exception as error:  # noqa: BLE001 - an error of ours must not leave the user waiting
            _LOG.exception("an error of ours in the probe of %s", order.plan)
            answer = _fault("unavailable", f"The probe failed: {error}")
        await self._report(order, answer)

    async def _answer(self, order: ProbeOrder, chips: ChipOrder | None = None) -> dict[str, object]:
        """What one process finds out; nothing of it is left."""
        directory = RunDirectory(self._context.layout.probes / order.plan)
        try:
            await self._launch(order, directory, chips)
            ending = await self._follow(order, directory)
            program, output = await asyncio.to_thread(_what_it_said, directory, ending)  # it may have said a lot
        finally:
            await self._end(order.plan, directory)
        if program is not None and (program.calls if program.chips is None else program.chips.programs):
            return {"program": program}
        return {**_why_nothing(order, ending, program), "output": output}

    async def _end(self, plan: str, directory: RunDirectory) -> None:
        """Nothing of it lives any more, whatever its start had come to, and nothing of it is left."""
        # A probe may be given up before its shim has begun, which then never does, or before anybody listened to it.
        if not directory.revoke_start() and directory.read_ending() is None:
            with suppress(OSError):
                link = await ShimLink.connect(directory)
                link.send(Stop(cause=StopCause.CANCELLED))
                link.close()
        if not await self._context.launcher.wait_gone(plan, _PROOF_S):
            await end_strays(self._context.layout.probes, plan.__eq__)
        self._context.launcher.forget(plan)
        shutil.rmtree(directory.path, ignore_errors=True)

    async def _answer_on_chips(self, order: ProbeOrder, on: str) -> dict[str, object]:
        """A plan for chips that are not there; each compilation has a process of its own."""
        compilers = Compilers(self._context.layout.compilers)
        family = "gpu" if isinstance(parse_chips(on), KnownGpus) else "tpu"
        installed = compilers.find(family)
        flaw = other_jaxlib(installed.version) if installed is not None and family == "gpu" else ""
        if installed is None or flaw:
            return _fault(
                "no_compiler",
                f"What {on} would need, only its own compiler knows, and {flaw or 'this host has none'}: its operator "
                f"adds it by `{add_command(family)}`. The figures of another chip would be wrong.",
            )
        chips = ChipOrder(
            on=on,
            library=str(compilers.library(family)),
            compiler=f"{installed.name} {installed.version}",
            batch_parameter=order.batch_parameter,
        )
        planner = ChipPlanner(
            KeptPlans(self._context.layout.compilers / "plans"),
            installed.sha256,
            partial(self._answer, chips=chips),
            partial(self._tell, order),
        )
        return await planner.answer(order, chips.compiler)

    async def _tell(self, order: ProbeOrder, text: str) -> None:
        """How far it is; nobody waits for this."""
        incarnation = self._context.registration.incarnation
        report = PlanReport(incarnation=incarnation, message=text, progress=True)
        with suppress(UnreachableError, RefusedError):
            await self._context.api.report_plan(order.plan, report)

    async def _launch(self, order: ProbeOrder, directory: RunDirectory, chips: ChipOrder | None) -> None:
        directory.create()
        await self._context.bundles.extract(order.bundle, directory.program)
        compiled = directory.path / "compiled"
        compiled.mkdir(mode=0o700)
        start = StartOrder(
            claimed=_as_claimed(order),
            compile_cache=str(compiled),
            checkpoints=str(directory.path / "checkpoints"),
            takeover_s=order.limit_s + _LOST_S + TERM_BEFORE_TAKEOVER_S,
            alive_at=boottime(),
            boot_id=boot_id(),
            probe_steps=order.steps,
            chips=chips,
        )
        directory.write_order(start)
        await self._context.launcher.start(order.plan, directory.path)

    async def _follow(self, order: ProbeOrder, directory: RunDirectory) -> Ending | None:
        """Until the program has ended, or was ended at the limit or by a cancel; None where its shim died."""
        link = await ShimLink.connect(directory)
        timer = asyncio.get_running_loop().call_later(
            order.limit_s, link.send, Stop(cause=StopCause.CANCELLED, grace_s=_GRACE_S)
        )
        try:
            async for news in link.news():
                if isinstance(news, Ended):
                    return news.ending
        finally:
            timer.cancel()
            link.close()
        return directory.read_ending()

    async def _report(self, order: ProbeOrder, answer: dict[str, object]) -> None:
        backoff = Backoff()
        while True:
            report = PlanReport.model_validate({"incarnation": self._context.registration.incarnation, **answer})
            try:
                return await self._context.api.report_plan(order.plan, report)
            except UnreachableError as error:
                await asyncio.sleep(error.retry_after_s or backoff.next_s())
            except RefusedError as error:
                _LOG.info("the probe of %s is not wanted any more: %s", order.plan, error)
                return None


def _cancel(task: asyncio.Task[None]) -> None:
    """Once: replies to heartbeats say that a probe is not wanted as long as it is here, and a second cancel would end
    its clearing away.
    """
    if not task.cancelling():
        task.cancel()


def _as_claimed(order: ProbeOrder) -> Claimed:
    """The order in the form of a member's work. Its ids are new and known to nobody."""
    count = order.replicas * order.devices_per_replica
    devices = tuple(
        AssignedDevice(
            device=new_id("dev"),
            platform="cpu",
            index=index,
            replica=index // order.devices_per_replica,
            logical=index % order.devices_per_replica,
        )
        for index in range(count)
    )
    return Claimed(
        member=new_id("mem"),
        attempt=new_id("att"),
        run=new_id("run"),
        version=new_id("ver"),
        job_name="plan",
        fence=1,
        attempt_number=1,
        bundle=order.bundle,
        entrypoint=order.entrypoint,
        strategy=order.strategy,
        record=RecordSpec(),
        checkpoint=CheckpointSpec(),
        parameters=order.parameters,
        limits=Limits(grace_s=_GRACE_S),
        replicas=order.replicas,
        devices=devices,
        rendezvous=Rendezvous(rank=0, size=1),
        cancel=False,
    )


def _what_it_said(directory: RunDirectory, ending: Ending | None) -> tuple[ProbedProgram | None, str]:
    """The program's own account, which is checked as it comes from user code, and the end of its output."""
    if ending is None:
        return None, ""
    program, output = None, ""
    reader = SpoolReader(directory.spool)
    while records := reader.read(ending.last_seq, 1_000, 8 * 1024 * 1024):
        for record in records:
            event = _event(record.payload)
            if isinstance(event, LogEvent) and event.stream != "system":
                output = (output + event.text)[-_OUTPUT_CHARS:]
            elif isinstance(event, ResultEvent):
                program = _program(event)
    reader.close()
    return program, output


def _event(payload: bytes | None) -> WorkerEvent | None:
    return EVENT.validate_json(payload) if payload is not None else None


def _program(event: ResultEvent) -> ProbedProgram | None:
    try:
        return ProbedProgram.model_validate(event.value)
    except ValidationError as error:
        _LOG.warning("a probe said what no plan can hold: %s", error)
        return None


def _why_nothing(order: ProbeOrder, ending: Ending | None, program: ProbedProgram | None) -> dict[str, object]:
    if program is not None and program.chips is not None and (stop := program.chips.stopped) is not None:
        where = f"{stop.file}:{stop.line}: " if stop.file else ""
        return _fault("not_plannable", f"{where}{stop.why}")
    if program is not None:
        return _fault("no_step", "The program ended without one step of its strategy (strategy.run was never called).")
    if order.on is not None and ending is not None and ending.reason is EndReason.START_FAILED:
        return _fault("bad_chips", ending.message)
    if ending is None or ending.reason in (
        EndReason.KILLED,
        EndReason.SPOOL_FULL,
        EndReason.START_FAILED,
        EndReason.NOT_STARTED,
    ):
        return _fault("unavailable", ending.message if ending else "The probe's process was killed from outside.")
    if ending.reason in (EndReason.CANCELLED, EndReason.LOST):
        return _fault("timed_out", f"The program came to no step within {order.limit_s:g} s.")
    return _fault("program_error", ending.message or f"The program ended: {ending.reason}.")


def _fault(fault: ProbeFault, message: str) -> dict[str, object]:
    return {"fault": fault, "message": message[:8_000]}
