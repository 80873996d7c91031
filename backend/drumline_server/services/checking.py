"""Judges submissions before anything is stored: the program, its parameters, and whether the fleet could hold them."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue
from sqlalchemy.orm import Session

from drumline import program
from drumline.contracts import api
from drumline.contracts.base import unstorable
from drumline.contracts.problems import FieldProblem, ProblemCode
from drumline.contracts.spec import ProgramRef, RunSubmit, find_unsupported
from drumline.errors import ParameterError, ProgramError
from drumline.slices import MAX_SIMULATED_DEVICES, SliceError, find_places
from drumline.wording import plural
from drumline_server.base.errors import DrumlineError, InvalidRequestError
from drumline_server.base.shapes import ONE_HOST_EXECUTORS, Chips, Shape, shape_of, tie_to_one_host
from drumline_server.lifecycle import checkpoints
from drumline_server.lifecycle.probes import PlannedContent, check_fits, plan_of_run, planned_contents
from drumline_server.scheduling import capacity
from drumline_server.scheduling.capacity import (
    HostCapacity,
    PlatformCapacity,
    ResumeLocation,
    best_platform,
    capacities,
    describe_need,
    describe_room,
    nearest_possible,
    readers_of,
    store_warning,
)
from drumline_server.services import bundles
from drumline_server.storage.runs import require_plan


def check_supported(body: RunSubmit) -> None:
    """Raises InvalidRequestError for a strategy that no worker can run, however long it waits."""
    flaw = find_unsupported(body.job.strategy)
    if flaw is not None:
        name, message = flaw
        raise InvalidRequestError(f"job.strategy.{name}", message)


def check_feasible(
    body: RunSubmit, hosts_with: Callable[[str], Sequence[HostCapacity]], *, is_plan: bool = False
) -> None:
    """Judges a submission by the project's hosts with devices of the platform that it asks for, if need be.

    Raises InvalidRequestError for a shape that no fleet could hold, too_many_replicas for one that this cannot, and
    too_many_simulated, unless it is for a plan, for one that it could only pretend to; these two may be queued all the
    same, with `wait_for_devices`.
    """
    replicas = body.resources.replicas
    if body.job.strategy.kind == "one_device" and replicas != 1:
        raise InvalidRequestError("resources.replicas", f"one_device has 1 replica; got {replicas}", hint="Ask for 1.")
    if body.wait_for_devices:
        return
    shape = asked_shape(body)
    hosts = hosts_with(shape.platform)
    possible = best_platform(hosts, shape)
    if shape.replicas <= possible.replicas:
        if not is_plan:
            _check_simulated(shape, hosts)
        _check_boxes(shape, hosts)
    if shape.replicas > possible.replicas:
        tie, way = _ties(body, possible)
        nearest, platforms = nearest_possible(shape, hosts_with), _devices_by_platform(hosts_with("any"))
        raise _too_many(shape, possible, nearest, platforms, tie=tie, way=way)


def asked_shape(body: RunSubmit) -> Shape:
    """What a submission needs room for."""
    job = body.job
    return shape_of(job.strategy.model_dump(), body.resources.model_dump(), job.checkpoint.model_dump())


def _ties(body: RunSubmit, possible: PlatformCapacity) -> tuple[str, str]:
    """What alone keeps the run from being split over the hosts, and what would let it be; empty where nothing does."""
    strategy, resources = body.job.strategy.model_dump(), body.resources.model_dump()
    tie = tie_to_one_host(strategy)
    over_hosts = {"kind": "mirrored"} if strategy["kind"] == "central_storage" else {**strategy, "executor": "auto"}
    split = shape_of(over_hosts, resources, {})
    if not tie and best_platform(possible.hosts, split).replicas >= split.replicas:
        return "", " Or start the workers with --checkpoint-dir on one volume, or leave checkpoint.every_steps out."
    if not tie or split.is_one_host or best_platform(possible.hosts, split).replicas < split.replicas:
        return "", ""
    if strategy["kind"] == "mirrored" and strategy["executor"] in ONE_HOST_EXECUTORS:
        return tie, f" Without executor={strategy['executor']} it may be split over hosts."
    return tie, " The strategy mirrored may be split over hosts."


def _check_simulated(shape: Shape, hosts: Sequence[HostCapacity]) -> None:
    """Raises too_many_simulated where only simulated devices could hold the run, and too many of them."""
    if not capacity.too_many_simulated(hosts, shape):
        return
    most = MAX_SIMULATED_DEVICES // shape.devices_per_replica
    raise DrumlineError(
        ProblemCode.TOO_MANY_SIMULATED,
        f"The run needs {plural(shape.devices, 'device')}, and those of this fleet are simulated: CPU devices of one "
        f"machine, of which a run computes on at most {MAX_SIMULATED_DEVICES}.",
        hint=f"Look at its plan (drumline plan, POST /plan), which needs no devices; or ask for at most "
        f"{plural(most, 'replica')}; or start workers on machines that have the devices.",
        errors=(FieldProblem(field="resources.replicas", message=f"at most {most} on simulated devices"),),
        context={"devices": shape.devices, "most": MAX_SIMULATED_DEVICES},
    )


def _check_boxes(shape: Shape, hosts: Sequence[HostCapacity]) -> None:
    """Raises InvalidRequestError where the replicas' blocks form no box that any host or slice has."""
    if shape.blocks is None:
        return
    misfit = ""
    if any(capacity.has_box(each, shape, lambda host: host.places) for each in capacity.slices_with(hosts, shape)):
        return
    for host in hosts:
        if host.devices < shape.devices:
            continue
        try:
            if host.places:
                found = find_places(host.places, shape.replicas, shape.blocks) is not None
            else:
                found = bool(shape.blocks.places(shape.replicas))
        except SliceError as error:
            found, misfit = False, f": {error}"
        if found:
            return
    block = "x".join(map(str, shape.blocks.shape))
    named = f" of {shape.blocks.tpu_slice}" if shape.blocks.tpu_slice else ""
    where = "host or slice" if capacity.slices_with(hosts, shape) else "host"
    raise InvalidRequestError(
        "job.strategy.computation_shape",
        f"{plural(shape.replicas, 'replica')} of {block} cores each form no box{named} that a {where} of this fleet "
        f"has, and each replica lies on one host{misfit or _meshes(hosts)}",
        hint="Ask for another number of replicas or another computation_shape (x, y, z, core).",
    )


def _meshes(hosts: Sequence[HostCapacity]) -> str:
    """The boxes that the hosts drive, in words; nothing where they lie on no slice."""
    boxes = {"x".join(str(len(set(axis))) for axis in zip(*host.places, strict=True)) for host in hosts if host.places}
    return f": hosts drive {', '.join(sorted(boxes)[:4])} (x, y, z, core)" if boxes else ""


def check_readable(body: RunSubmit, home: ResumeLocation | None, hosts: Sequence[HostCapacity]) -> None:
    """Judges a submission that resumes from a checkpoint by those of `hosts` that can read it.

    Raises InvalidRequestError, also where nobody can; it may be queued all the same, with `wait_for_devices`.
    """
    shape = asked_shape(body)
    readers = readers_of(home, hosts) if home else []
    possible = best_platform(readers, shape).replicas
    if possible >= shape.replicas:
        return
    names, room = ", ".join(sorted(host.host_name for host in readers)), plural(possible, "replica")
    where = f"only {names} can read it, with room for {room}" if readers else "no living host can read it"
    nearest = f"Ask for at most {room}, leave" if possible else "Leave"
    raise InvalidRequestError(
        "resume_from",
        f"{where}; the run needs {describe_need(shape)}",
        hint=f"{nearest} resume_from out to start over, or set wait_for_devices (--wait-for-devices) to wait for one.",
    )


def _too_many(
    shape: Shape, possible: PlatformCapacity, nearest: Shape | None, platforms: Mapping[str, int], *, tie: str, way: str
) -> DrumlineError:
    """`tie`: what alone keeps the run from being split over the hosts; `way`: what would let it be."""
    there = "" if possible.hosts or not platforms else f": the hosts have {_describe_platforms(platforms)}"
    if shape.blocks and shape.platform == "tpu" and not possible.hosts:
        there += "; the strategy tpu takes tpu devices unless a platform is named"
    if tie:
        there = f" ({plural(possible.devices, 'device')} on {len(possible.hosts)} hosts): {tie}, stays on one host"
    ask = f"Ask for {_changes(shape, nearest)}, or set" if nearest else "Set"
    return DrumlineError(
        ProblemCode.TOO_MANY_REPLICAS,
        f"The run needs {describe_need(shape)}, but {describe_room(shape, possible)}{there}.",
        hint=f"{ask} wait_for_devices (--wait-for-devices) to queue it until there are enough.{way}",
        errors=(_wrong_field(shape, nearest, platforms),),
        context={
            "replicas": shape.replicas,
            "possible": possible.replicas,
            "devices": possible.largest if shape.is_one_host else possible.devices,
            "platform": shape.platform,
            "platforms": dict(platforms),
            "nearest": nearest
            and {
                "replicas": nearest.replicas,
                "devices_per_replica": nearest.devices_per_replica,
                "platform": nearest.platform,
            },
        },
    )


def _devices_by_platform(hosts: Sequence[HostCapacity]) -> dict[str, int]:
    devices: Counter[str] = Counter()
    for host in hosts:
        devices[host.platform] += host.devices
    return dict(sorted(devices.items()))


def _describe_platforms(platforms: Mapping[str, int]) -> str:
    return " and ".join(plural(devices, f"{platform} device") for platform, devices in platforms.items())


def _changes(shape: Shape, nearest: Shape) -> str:
    """What to ask for instead, in words: `at most 1 replica and at most 6 devices per replica`."""
    changes = []
    if nearest.platform != shape.platform:
        changes.append(f"platform {nearest.platform}")
    if nearest.replicas != shape.replicas:
        changes.append(f"at most {plural(nearest.replicas, 'replica')}")
    if nearest.devices_per_replica != shape.devices_per_replica:
        changes.append(f"at most {plural(nearest.devices_per_replica, 'device')} per replica")
    return " and ".join(changes)


def _wrong_field(shape: Shape, nearest: Shape | None, platforms: Mapping[str, int]) -> FieldProblem:
    if nearest and nearest.platform != shape.platform:
        message = f"{shape.platform}; the hosts have {_describe_platforms(platforms)}"
        return FieldProblem(field="resources.platform", message=message)
    if nearest and nearest.devices_per_replica != shape.devices_per_replica:
        message = f"{plural(shape.devices_per_replica, 'device')} per replica; {describe_need(nearest)} can ever start"
        return FieldProblem(field="job.strategy.computation_shape", message=message)
    most = nearest.replicas if nearest else 0
    message = f"{plural(shape.replicas, 'replica')}; at most {most} can ever start"
    return FieldProblem(field="resources.replicas", message=message)


_WORD = re.compile(r"[a-z]+ ")


def require_storable(body: RunSubmit) -> None:
    """Raises InvalidRequestError for parameters that no store, and no hash of the request, could take."""
    problem = unstorable(body.parameters)
    if problem:
        raise InvalidRequestError("parameters", problem)


@dataclass(frozen=True, slots=True)
class Checked:
    """What a submission turned out to mean."""

    parameters: dict[str, JsonValue]
    """As the program takes them."""
    plan_id: str | None
    """The plan that it was submitted from."""
    resume_from: str | None
    """The checkpoint that its first attempt resumes from."""
    warnings: tuple[api.RunWarning, ...] = ()
    defaults: Mapping[str, JsonValue] = field(default_factory=dict)
    """What the program takes for parameters that are left out, as far as its source tells; one for all its runs."""


class Checker:
    """Checks submissions to one project; what many of them share is looked up once."""

    def __init__(self, session: Session, project_id: str, *, now: int, is_plan: bool = False) -> None:
        self._session = session
        self._now = now
        self._is_plan = is_plan
        """Whether nothing is to compute on the devices."""
        self._project_id = project_id
        self._bundles: dict[str, api.Bundle] = {}
        self._hosts: dict[str, list[HostCapacity]] = {}
        self._known_defaults: dict[ProgramRef, dict[str, JsonValue]] = {}
        self._planned: dict[ProgramRef, list[PlannedContent]] = {}
        self._chips: dict[Shape, Chips | None] = {}
        self._homes: dict[str, capacity.ResumeLocation | None] = {}
        self._shapes: dict[tuple[str, str, str, bool], DrumlineError | tuple[api.RunWarning, ...]] = {}
        """What was found of a strategy, its resources, its checkpoints and whether it may wait."""

    def check(self, body: RunSubmit) -> Checked:
        """What the run needs to be queued.

        Raises DrumlineError: bundle_not_found, entrypoint_not_found, unknown_parameter, missing_parameter,
        bad_parameter, too_many_replicas, invalid_request, not_found for the plan or checkpoint.
        """
        parameters = self._check_parameters(body)
        warnings = self._check_shape(body)
        self._check_fits(body, parameters)
        resume_from = body.resume_from and checkpoints.resolve_checkpoint(
            self._session, self._project_id, body.resume_from
        )
        if resume_from and not body.wait_for_devices:
            check_readable(body, self._home_of(resume_from), self._hosts_with(body.resources.platform))
        return Checked(parameters, body.plan, resume_from, warnings, self._defaults_told(body.job.program))

    def _check_fits(self, body: RunSubmit, parameters: dict[str, JsonValue]) -> None:
        """Judges by the plan that it was submitted from, else by one of the same content for the chips it would get."""
        plan = body.plan and require_plan(self._session, self._project_id, body.plan)
        if self._is_plan or body.anyway:
            return
        if not plan or (plan.terms or {}).get("on") is None:
            found = self._plan_of_same_content(body, parameters)
            plan = found and require_plan(self._session, self._project_id, found)
        if plan:
            check_fits(self._session, plan, now=self._now)

    def _plan_of_same_content(self, body: RunSubmit, parameters: dict[str, JsonValue]) -> str | None:
        shape, called = asked_shape(body), body.job.program
        if shape not in self._chips:
            self._chips[shape] = capacity.chips_of(self._hosts_with(shape.platform), shape)
        chips = self._chips[shape]
        if chips is None:
            return None
        defaults = self._defaults(called)
        if called not in self._planned:
            self._planned[called] = planned_contents(self._session, self._project_id, called, defaults, now=self._now)
        return plan_of_run(self._planned[called], body.job.strategy, {**defaults, **parameters}, chips)

    def _defaults(self, called: ProgramRef) -> dict[str, JsonValue]:
        """What the program takes for parameters that are left out."""
        entrypoint = program.find(self._bundle(called.bundle).entrypoints, called.entrypoint)
        return {one.name: one.default for one in entrypoint.parameters if not one.required}

    def _defaults_told(self, called: ProgramRef) -> dict[str, JsonValue]:
        """Those of `_defaults` that the source tells; the same object for all runs of the program."""
        if called not in self._known_defaults:
            entrypoint = program.find(self._bundle(called.bundle).entrypoints, called.entrypoint)
            self._known_defaults[called] = program.known_defaults(entrypoint)
        return self._known_defaults[called]

    def _check_shape(self, body: RunSubmit) -> tuple[api.RunWarning, ...]:
        """Judges each shape once: the runs of a sweep all have the same."""
        job = body.job
        parts = (job.strategy, body.resources, job.checkpoint)
        strategy, resources, checkpoint = (part.model_dump_json() for part in parts)
        asked = strategy, resources, checkpoint, body.wait_for_devices
        if asked not in self._shapes:
            try:
                check_supported(body)
                check_feasible(body, self._hosts_with, is_plan=self._is_plan)
            except DrumlineError as error:
                self._shapes[asked] = error
            else:
                shape = asked_shape(body)
                self._shapes[asked] = store_warning(self._hosts_with(shape.platform), shape)
        found = self._shapes[asked]
        if isinstance(found, DrumlineError):
            raise found.with_traceback(None)  # which grows by each raise
        return found

    def _check_parameters(self, body: RunSubmit) -> dict[str, JsonValue]:
        packed = self._bundle(body.job.program.bundle)
        try:
            entrypoint = program.find(packed.entrypoints, body.job.program.entrypoint)
            return program.check_parameters(entrypoint, body.parameters)
        except ParameterError as error:
            field = FieldProblem(field=f"parameters.{error.name}", message=error.message)
            raise DrumlineError(ProblemCode(error.code), sentence(error.message), errors=(field,)) from None
        except ProgramError as error:
            offered = [entry.entrypoint for entry in packed.entrypoints]
            field = FieldProblem(field="job.program.entrypoint", message=error.message)
            raise DrumlineError(
                ProblemCode(error.code), sentence(error.message), context={"entrypoints": offered}, errors=(field,)
            ) from None

    def check_batch_parameter(self, body: RunSubmit, name: str) -> None:
        """Judges the parameter whose largest value a plan of the run looks for; the run was checked already.

        Raises DrumlineError: unknown_parameter, bad_parameter.
        """
        entrypoint = program.find(self._bundle(body.job.program.bundle).entrypoints, body.job.program.entrypoint)
        try:
            program.check_batch_parameter(entrypoint, body.parameters, name)
        except ParameterError as error:
            field = FieldProblem(field="probe.batch_parameter", message=error.message)
            raise DrumlineError(ProblemCode(error.code), sentence(error.message), errors=(field,)) from None

    def _bundle(self, sha256: str) -> api.Bundle:
        if sha256 not in self._bundles:
            with bundles.required(sha256):
                self._bundles[sha256] = bundles.get_bundle(self._session, self._project_id, sha256)
        return self._bundles[sha256]

    def _home_of(self, checkpoint_id: str) -> capacity.ResumeLocation | None:
        if checkpoint_id not in self._homes:
            self._homes[checkpoint_id] = capacity.resume_location_of(self._session, self._project_id, checkpoint_id)
        return self._homes[checkpoint_id]

    def _hosts_with(self, platform: str) -> list[HostCapacity]:
        if platform not in self._hosts:
            self._hosts[platform] = capacities(self._session, self._project_id, platform)
        return self._hosts[platform]


def sentence(text: str) -> str:
    """A message of the SDK as the API says it; a name at its beginning, such as `train:main`, stays as it is."""
    begins = text[:1].upper() if _WORD.match(text) else text[:1]
    return f"{begins}{text[1:]}{'' if text.endswith(('.', '?')) else '.'}"
