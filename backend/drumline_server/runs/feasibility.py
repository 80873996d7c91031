"""Refuses at submit what could never start, with the reason and the nearest that could."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from drumline.contracts.problems import FieldProblem, ProblemCode
from drumline.contracts.spec import RunSubmit
from drumline.contracts.supported import unsupported
from drumline.wording import counted
from drumline_server.checkpoints.service import Home, readers_of
from drumline_server.errors import DrumlineError, InvalidRequestError
from drumline_server.runs.nearest import nearest_possible
from drumline_server.scheduler.capacity import HostCapacity, Possible, most_possible
from drumline_server.scheduler.shapes import OWN_COLLECTIVES, Shape, shape_of, tie_to_one_host

_OVER_HOSTS = (
    f" A program that exchanges with JAX's own collectives, never through its strategy, may be split over hosts: "
    f"--strategy-option collectives={OWN_COLLECTIVES}."
)


def check_supported(body: RunSubmit) -> None:
    """Raises InvalidRequestError for a strategy that no worker can run, however long it waits."""
    flaw = unsupported(body.job.strategy)
    if flaw is not None:
        name, message = flaw
        raise InvalidRequestError(f"job.strategy.{name}", message)


def check_feasible(body: RunSubmit, hosts_with: Callable[[str], Sequence[HostCapacity]]) -> None:
    """Judges a submission by the project's hosts with devices of the platform that it asks for, if need be.

    Raises InvalidRequestError for a shape that no fleet could hold, too_many_replicas for one that this cannot; the
    second may be queued all the same, with `wait_for_devices`.
    """
    replicas = body.resources.replicas
    if body.job.strategy.kind == "one_device" and replicas != 1:
        raise InvalidRequestError("resources.replicas", f"one_device has 1 replica; got {replicas}", hint="Ask for 1.")
    if body.wait_for_devices:
        return
    strategy, resources = body.job.strategy.model_dump(), body.resources.model_dump()
    shape = shape_of(strategy, resources)
    possible = most_possible(hosts_with(shape.platform), shape)
    if shape.replicas > possible.replicas:
        split = shape_of({**strategy, "collectives": OWN_COLLECTIVES}, resources)
        could_split = most_possible(possible.hosts, split).replicas >= shape.replicas
        way = _OVER_HOSTS if body.job.strategy.kind == "mirrored" and could_split else ""
        tie = tie_to_one_host(strategy) if way else ""
        nearest, platforms = nearest_possible(shape, hosts_with), _devices_by_platform(hosts_with("any"))
        raise _too_many(shape, possible, nearest, platforms, tie=tie, way=way)


def check_readable(body: RunSubmit, home: Home | None, hosts: Sequence[HostCapacity]) -> None:
    """Judges a submission that goes on from a checkpoint by those of `hosts` that can read it.

    Raises InvalidRequestError, also where nobody can; it may be queued all the same, with `wait_for_devices`.
    """
    shape = shape_of(body.job.strategy.model_dump(), body.resources.model_dump())
    readers = readers_of(home, hosts) if home else []
    possible = most_possible(readers, shape).replicas
    if possible >= shape.replicas:
        return
    names, room = ", ".join(sorted(host.host_name for host in readers)), counted(possible, "replica")
    where = f"only {names} can read it, with room for {room}" if readers else "no living host can read it"
    nearest = f"Ask for at most {room}, leave" if possible else "Leave"
    raise InvalidRequestError(
        "resume_from",
        f"{where}; the run needs {describe_need(shape)}",
        hint=f"{nearest} resume_from out to begin anew, or set wait_for_devices (--wait-for-devices) to wait for one.",
    )


def describe_need(shape: Shape) -> str:
    """What a shape needs, in words: `3 replicas of 2 devices on one host`."""
    of_devices = f" of {counted(shape.devices_per_replica, 'device')}" if shape.devices_per_replica > 1 else ""
    where = " on one host" if shape.is_one_host and shape.replicas > 1 else ""
    return f"{counted(shape.replicas, 'replica')}{of_devices}{where}"


def describe_room(shape: Shape, possible: Possible) -> str:
    """What the fleet has, in words: `the largest host has 8 devices`."""
    kind = "device" if shape.platform == "any" else f"{shape.platform} device"
    if not possible.hosts:
        return f"no host with {kind}s is registered"
    if shape.is_one_host or len(possible.hosts) == 1 or possible.largest < shape.devices_per_replica:
        return f"the largest host has {counted(possible.largest, kind)}"
    return f"the {len(possible.hosts)} hosts together have {counted(possible.devices, kind)}" + (
        f", room for {counted(possible.replicas, 'replica')}" if shape.devices_per_replica > 1 else ""
    )


def _too_many(
    shape: Shape, possible: Possible, nearest: Shape | None, platforms: Mapping[str, int], *, tie: str, way: str
) -> DrumlineError:
    """`tie`: what alone keeps the run from being split over the hosts; `way`: what would let it be."""
    there = "" if possible.hosts or not platforms else f": the hosts have {_describe_platforms(platforms)}"
    if tie:
        there = f" ({counted(possible.devices, 'device')} on {len(possible.hosts)} hosts): {tie}, stays on one host"
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
    return " and ".join(counted(devices, f"{platform} device") for platform, devices in platforms.items())


def _changes(shape: Shape, nearest: Shape) -> str:
    """What to ask for instead, in words: `at most 1 replica and at most 6 devices per replica`."""
    changes = []
    if nearest.platform != shape.platform:
        changes.append(f"platform {nearest.platform}")
    if nearest.replicas != shape.replicas:
        changes.append(f"at most {counted(nearest.replicas, 'replica')}")
    if nearest.devices_per_replica != shape.devices_per_replica:
        changes.append(f"at most {counted(nearest.devices_per_replica, 'device')} per replica")
    return " and ".join(changes)


def _wrong_field(shape: Shape, nearest: Shape | None, platforms: Mapping[str, int]) -> FieldProblem:
    if nearest and nearest.platform != shape.platform:
        message = f"{shape.platform}; the hosts have {_describe_platforms(platforms)}"
        return FieldProblem(field="resources.platform", message=message)
    if nearest and nearest.devices_per_replica != shape.devices_per_replica:
        message = f"{counted(shape.devices_per_replica, 'device')} per replica; {describe_need(nearest)} can ever start"
        return FieldProblem(field="job.strategy.computation_shape", message=message)
    most = nearest.replicas if nearest else 0
    message = f"{counted(shape.replicas, 'replica')}; at most {most} can ever start"
    return FieldProblem(field="resources.replicas", message=message)
