"""Refuses at submit what could never start, with the reason and the nearest that could."""

from collections.abc import Callable, Sequence

from drumline.contracts.problems import FieldProblem, ProblemCode
from drumline.contracts.spec import RunSubmit
from drumline.wording import counted
from drumline_server.checkpoints.service import Home, readers_of
from drumline_server.errors import DrumlineError, InvalidRequestError
from drumline_server.scheduler.capacity import HostCapacity, Possible, most_possible
from drumline_server.scheduler.shapes import Shape, shape_of


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
    shape = shape_of(body.job.strategy.model_dump(), body.resources.model_dump())
    possible = most_possible(hosts_with(body.resources.platform), shape)
    if shape.replicas > possible.replicas:
        raise _too_many(shape, possible)


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
    return f"{counted(shape.replicas, 'replica')}{of_devices}{' on one host' if shape.is_one_host else ''}"


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


def _too_many(shape: Shape, possible: Possible) -> DrumlineError:
    nearest = f"Ask for at most {counted(possible.replicas, 'replica')}, or set" if possible.replicas else "Set"
    devices = possible.largest if shape.is_one_host else possible.devices
    return DrumlineError(
        ProblemCode.TOO_MANY_REPLICAS,
        f"The run needs {describe_need(shape)}, but {describe_room(shape, possible)}.",
        hint=f"{nearest} wait_for_devices (--wait-for-devices) to queue it until there are enough.",
        errors=(
            FieldProblem(
                field="resources.replicas",
                message=f"{counted(shape.replicas, 'replica')}; at most {possible.replicas} can ever start",
            ),
        ),
        context={
            "replicas": shape.replicas,
            "possible": possible.replicas,
            "devices": devices,
            "platform": shape.platform,
        },
    )
