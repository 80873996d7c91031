"""What the known hosts could ever hold, and which of them can read a run's checkpoints."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import case, func, or_, select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.states import DeviceState
from drumline.slices import MAX_SIMULATED_DEVICES, KnownSlice, Place, find_places, find_places_over_hosts
from drumline.wording import plural
from drumline_server.base.shapes import Chips, Shape, most_replicas, slices_of
from drumline_server.lifecycle import checkpoints
from drumline_server.lifecycle.checkpoints import checkpoints_up_to, resume_candidates
from drumline_server.scheduling.placement import platforms_of
from drumline_server.storage.models import Checkpoint, Device, Host, Run


def place_on_slice(platform: str, coords: Sequence[int] | None, core: int | None) -> Place | None:
    """Where a device is on its slice; None for one that lies on none. The coordinates of GPUs are none."""
    if platform != "tpu" or coords is None or len(coords) != 3:
        return None
    x, y, z = coords
    return x, y, z, core or 0


@dataclass(frozen=True, slots=True)
class HostCapacity:
    """Devices of one platform on one host, and how many of them are free or quarantined."""

    host_id: str
    host_name: str
    platform: str
    devices: int
    free: int
    quarantined: int
    out_of_service: str | None
    """Why the host takes no runs: `quarantined`, `draining` or `lost`."""
    kind: str = ""
    """Of all its devices; empty where they are of several."""
    is_simulated: int = 0
    """1 where its devices are; 0 else, as SQL counts."""
    store: str = ""
    """Where it keeps checkpoints; empty: in its own directory."""
    slice_name: str = ""
    """The TPU slice that it is of, empty for none; `topology` has its chips."""
    places: tuple[Place, ...] = ()
    """Of its devices, where they lie on a slice."""
    free_places: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class PlatformCapacity:
    """The most replicas of a shape that the hosts of one platform could ever hold."""

    platform: str
    replicas: int
    hosts: tuple[HostCapacity, ...]
    """Of that platform, largest first; none where there is no such platform."""

    @property
    def largest(self) -> int:
        """Devices of the largest host."""
        return self.hosts[0].devices if self.hosts else 0

    @property
    def devices(self) -> int:
        """Devices of all hosts together."""
        return sum(host.devices for host in self.hosts)


def capacities(session: Session, project_id: str, platform: str = "any") -> list[HostCapacity]:
    """Every registered host of the project with devices of `platform`, largest first."""
    free = func.sum(case((Device.state == DeviceState.FREE, 1), else_=0))
    quarantined = func.sum(case((Device.state == DeviceState.QUARANTINED, 1), else_=0))
    out_of_service = case(
        (Host.lost_at.is_not(None), "lost"),
        (Host.quarantined_at.is_not(None), "quarantined"),
        (or_(Host.draining.is_(True), Host.drain_requested_at.is_not(None)), "draining"),
    )
    kind = case((func.min(Device.kind) == func.max(Device.kind), func.max(Device.kind)), else_="")
    simulated = func.max(case((Device.simulated, 1), else_=0))
    query = (
        select(
            Host.id,
            Host.name,
            Device.platform,
            func.count(),
            free,
            quarantined,
            out_of_service,
            kind,
            simulated,
            Host.checkpoint_store,
            Host.slice_name,
        )
        .join(Host, Host.id == Device.host_id)
        .where(Device.project_id == project_id, Device.present.is_(True))
        .group_by(Host.id, Host.name, Device.platform, Host.checkpoint_store, Host.slice_name)
        .order_by(func.count().desc(), Host.name)
    )
    if platform != "any":
        query = query.where(Device.platform == platform)
    rows = session.execute(query).all()
    places = _places(session, project_id) if any(row.platform == "tpu" for row in rows) else {}
    hosts = [HostCapacity(*row) for row in rows]
    return [
        replace(host, places=there, free_places=free) if host.platform == "tpu" else host
        for host in hosts
        for there, free in [places.get(host.host_id, _NO_PLACES)]
    ]


_NO_PLACES: tuple[tuple[Place, ...], tuple[Place, ...]] = (), ()


def _places(session: Session, project_id: str) -> dict[str, tuple[tuple[Place, ...], tuple[Place, ...]]]:
    """By host those of its TPU devices, and of the free ones among them."""
    columns = (Device.host_id, Device.state, Device.platform, Device.coords, Device.core_on_chip)
    here = (Device.project_id == project_id, Device.present.is_(True), Device.platform == "tpu")
    found: dict[str, list[tuple[Place, bool]]] = {}
    for host_id, state, *device in session.execute(select(*columns).where(*here)):
        if (place := place_on_slice(*device)) is not None:
            found.setdefault(host_id, []).append((place, state == DeviceState.FREE))
    return {
        host_id: (tuple(place for place, _ in there), tuple(place for place, is_free in there if is_free))
        for host_id, there in found.items()
    }


def too_many_simulated(hosts: Sequence[HostCapacity], shape: Shape) -> bool:
    """Whether only simulated devices of `hosts` could hold the shape, and it takes more than a machine can simulate."""
    if shape.devices <= MAX_SIMULATED_DEVICES or best_platform(hosts, shape).replicas < shape.replicas:
        return False
    return best_platform([host for host in hosts if not host.is_simulated], shape).replicas < shape.replicas


def chips_of(hosts: Sequence[HostCapacity], shape: Shape) -> Chips | None:
    """The chips that the shape computes on wherever it is placed; None where that is open, and on CPU devices."""
    if shape.blocks is not None and shape.blocks.tpu_slice:
        known = KnownSlice.parse(shape.blocks.tpu_slice)
        return Chips(known.kind, shape.devices, known.chips)
    least = shape.devices if shape.is_one_host else shape.devices_per_replica
    able = [host for host in hosts if host.platform in platforms_of(shape) and host.devices >= least]
    kinds = {(host.platform, host.kind) for host in able}
    if len(kinds) != 1 or able[0].platform == "cpu" or best_platform(able, shape).replicas < shape.replicas:
        return None
    places = {place for host in able for place in host.places}
    box = None
    if len(places) == sum(host.devices for host in able) == shape.devices:  # it takes all of them
        x, y, z = (len({place[axis] for place in places}) for axis in range(3))
        box = x, y, z
    return Chips(able[0].kind, shape.devices, box)


def lacks_box(hosts: Sequence[HostCapacity], shape: Shape) -> bool:
    """Whether enough devices are free on a host, or a slice, and on none of those a box that the run could have."""
    enough = [host for host in hosts if host.free >= shape.devices]
    together = [each for each in slices_with(hosts, shape) if sum(host.free for host in each) >= shape.devices]
    return bool(enough or together) and not (
        any(not host.places or find_places(host.free_places, shape.replicas, shape.blocks) for host in enough)
        or any(has_box(each, shape, lambda host: host.free_places) for each in together)
    )


def slices_with(hosts: Sequence[HostCapacity], shape: Shape) -> list[list[HostCapacity]]:
    """The hosts of each slice that a gang of the shape may be split over, by the slice's name."""
    if not shape.is_one_slice:
        return []
    slices = _slices_by_host(hosts, shape)
    together: dict[str, list[HostCapacity]] = {}
    for host in hosts:
        if host.host_id in slices:
            together.setdefault(slices[host.host_id], []).append(host)
    return [each for _, each in sorted(together.items()) if len(each) > 1]


def has_box(hosts: Sequence[HostCapacity], shape: Shape, places: Callable[[HostCapacity], Sequence[Place]]) -> bool:
    """Whether those places of the hosts of one slice hold the gang; never where two slices go by one name."""
    host_of = {place: host.host_id for host in hosts for place in places(host)}
    if shape.blocks is None or len(host_of) < sum(len(places(host)) for host in hosts):
        return False
    return find_places_over_hosts(host_of, shape.replicas, shape.blocks) is not None


def _slices_by_host(hosts: Sequence[HostCapacity], shape: Shape) -> dict[str, str]:
    stores = {host.host_id: host.store for host in hosts if host.store}
    return slices_of(shape, {host.host_id: host.slice_name for host in hosts}, stores)


def best_platform(hosts: Sequence[HostCapacity], shape: Shape) -> PlatformCapacity:
    """The platform of the shape that could hold most of it; a gang has devices of one platform."""
    options = [_possible(hosts, shape, platform) for platform in platforms_of(shape)]
    return max(options, key=lambda option: (option.replicas, option.devices))


def _possible(hosts: Sequence[HostCapacity], shape: Shape, platform: str) -> PlatformCapacity:
    of_platform = tuple(host for host in hosts if host.platform == platform)
    return PlatformCapacity(platform, _replicas_on(of_platform, shape, lambda host: host.devices), of_platform)


def room(hosts: Sequence[HostCapacity], shape: Shape, devices: Callable[[HostCapacity], int]) -> int:
    """How many replicas of the shape have room, on the platform that has most of it, by what `devices` counts."""
    return max(
        _replicas_on([host for host in hosts if host.platform == platform], shape, devices)
        for platform in platforms_of(shape)
    )


def _replicas_on(hosts: Sequence[HostCapacity], shape: Shape, devices: Callable[[HostCapacity], int]) -> int:
    stores = {host.host_id: host.store for host in hosts if host.store}
    apart = _slices_by_host(hosts, shape) if shape.is_one_slice else stores
    return most_replicas({host.host_id: devices(host) for host in hosts}, shape.by_slice(), apart)


def shares_no_store(hosts: Sequence[HostCapacity], shape: Shape) -> bool:
    """Whether only hosts that share no checkpoint store have room for the gang together, and no host alone."""
    if shape.is_one_host or best_platform(hosts, shape).replicas < shape.replicas:
        return False
    return best_platform(hosts, replace(shape, is_saved=True)).replicas < shape.replicas


def describe_need(shape: Shape) -> str:
    """What a shape needs, in words: `3 replicas of 2 devices on one host`."""
    of_devices = f" of {plural(shape.devices_per_replica, 'device')}" if shape.devices_per_replica > 1 else ""
    where = " on hosts that share a checkpoint store" if shape.is_saved else ""
    where = " on one host" if shape.is_one_host else " on one slice" if shape.is_one_slice else where
    if shape.replicas == 1:
        where = ""
    return f"{plural(shape.replicas, 'replica')}{of_devices}{where}"


def describe_room(shape: Shape, possible: PlatformCapacity) -> str:
    """What the fleet has, in words: `the largest host has 8 devices`."""
    kind = "device" if shape.platform == "any" else f"{shape.platform} device"
    if not possible.hosts:
        return f"no host with {kind}s is registered"
    if shape.is_one_host or len(possible.hosts) == 1 or possible.largest < shape.devices_per_replica:
        return f"the largest host has {plural(possible.largest, kind)}"
    if shape.is_one_slice:
        return f"the largest slice has room for {plural(possible.replicas, 'replica')}"
    if shape.is_saved:
        return f"no hosts of one store have room for more than {plural(possible.replicas, 'replica')}"
    return f"the {len(possible.hosts)} hosts together have {plural(possible.devices, kind)}" + (
        f", room for {plural(possible.replicas, 'replica')}" if shape.devices_per_replica > 1 else ""
    )


def store_warning(hosts: Sequence[HostCapacity], shape: Shape) -> tuple[api.RunWarning, ...]:
    """What to know of a run that these hosts can only hold where it cannot save."""
    if not shares_no_store(hosts, shape):
        return ()
    most = best_platform(hosts, replace(shape, is_saved=True)).replicas
    return no_shared_store(
        f"No host alone has room for {plural(shape.replicas, 'replica')}, and those that have it together share no "
        "checkpoint store: run.checkpoint fails there.",
        f", or ask for at most {plural(most, 'replica')}" if most else "",
    )


def no_shared_store(sentence: str, otherwise: str = "") -> tuple[api.RunWarning, ...]:
    """The warning of a run over hosts that share no store, with what helps."""
    remedy = f"Start their workers with --checkpoint-dir on one volume{otherwise}."
    return (api.RunWarning(code="no_shared_store", message=f"{sentence} {remedy}"),)


def nearest_possible(shape: Shape, hosts_with: Callable[[str], Sequence[HostCapacity]]) -> Shape | None:
    """What the fleet could hold, on the platform of the shape if it has devices of it; None for a fleet of none."""
    hosts = hosts_with(shape.platform)
    if hosts:
        return _on(hosts, shape)
    elsewhere = hosts_with("any")
    found = _on(elsewhere, shape.of(platform="any"))
    return found and found.of(platform=best_platform(elsewhere, found).platform)


def _on(hosts: Sequence[HostCapacity], shape: Shape) -> Shape | None:
    """Fewer replicas; where not even one has room, as many with fewer devices each, or one with as many as a host."""
    possible = best_platform(hosts, shape)
    if possible.replicas:
        return shape.of(replicas=min(shape.replicas, possible.replicas))
    largest = max((host.devices for host in hosts), default=0)
    for replicas in (shape.replicas, 1):
        devices = _most_devices(hosts, shape, replicas, largest)
        if devices:
            return replace(shape, replicas=replicas, devices_per_replica=devices)
    return None


def _most_devices(hosts: Sequence[HostCapacity], shape: Shape, replicas: int, largest: int) -> int:
    """With how many devices each, of at most `largest`, there is room for so many replicas; 0 where there never is.

    Room only shrinks as replicas grow, so that a dozen looks at the hosts are enough, however many devices they have.
    """

    def lacks_room(devices: int) -> bool:
        return best_platform(hosts, replace(shape, devices_per_replica=devices)).replicas < replicas

    return bisect_left(range(1, largest + 1), True, key=lacks_room)


@dataclass(frozen=True, slots=True)
class ResumeLocation:
    """Where a run can resume: the checkpoint, and the living hosts that can read it, with their names by id."""

    step: int
    members: int
    """How many saved it."""
    hosts: dict[str, str]
    lost: Checkpoint | None
    """A better one that no living host can read."""


def resume_locations(session: Session, project_id: str, runs: Collection[Run]) -> dict[str, ResumeLocation]:
    """Where those of the project's runs can resume that have something to resume from.

    The number of statements does not grow with the runs.
    """
    runs_with_history = [run for run in runs if run.fence > 0 or run.resume_from is not None]
    candidates = resume_candidates(session, project_id, runs_with_history) if runs_with_history else {}
    stores = {row.store for rows in candidates.values() for row in rows}
    living = checkpoints.live_readers(session, project_id, stores) if stores else {}
    return _locate(session, candidates, living)


def runs_tied_to_hosts(session: Session, project_id: str, run_ids: Collection[str]) -> dict[str, ResumeLocation]:
    """Of each of the project's runs that waits for one of certain hosts, where these are."""
    runs = checkpoints.runs_with_history(session, run_ids) if run_ids else ()
    homes = resume_locations(session, project_id, runs)
    fleet = capacities(session, project_id) if homes else []
    return {run.id: home for run in runs if (home := homes.get(run.id)) and is_tied(run, home, fleet)}


def is_tied(run: Run, home: ResumeLocation, fleet: Sequence[HostCapacity]) -> bool:
    """Whether a run waits for one of the living hosts that can read its checkpoint.

    One that was told to resume from a checkpoint does, and never starts over by itself. Another does only where they
    have devices enough: else it would wait for ever for what it saved on its own account.
    """
    if run.resume_from is not None:
        return True
    there, shape = readers_of(home, fleet), Shape.parse(run.shape)
    return bool(there) and best_platform(there, shape).replicas >= shape.replicas


def readers_of(home: ResumeLocation, fleet: Sequence[HostCapacity]) -> list[HostCapacity]:
    """Those of the fleet that can read the checkpoint."""
    return [host for host in fleet if host.host_id in home.hosts]


def resume_location_of(session: Session, project_id: str, checkpoint_id: str) -> ResumeLocation | None:
    """Where a run that is told to resume from that checkpoint begins; None where nothing of it is kept."""
    source = checkpoints.checkpoints_by_id(session, project_id, [checkpoint_id]).get(checkpoint_id)
    if source is None:
        return None
    rows = checkpoints_up_to(source, checkpoints.kept_checkpoints(session, [source.run_id]).get(source.run_id, ()))
    living = checkpoints.live_readers(session, project_id, {row.store for row in rows})
    return _locate(session, {checkpoint_id: rows}, living).get(checkpoint_id)


def _locate(
    session: Session, candidates: Mapping[str, Sequence[Checkpoint]], living: Mapping[str, dict[str, str]]
) -> dict[str, ResumeLocation]:
    """Of each that has candidates, by key."""
    best = {key: next((row for row in rows if row.store in living), None) for key, rows in candidates.items() if rows}
    attempts = {row.attempt_id for row in best.values() if row is not None}
    members = checkpoints.members_of_attempts(session, attempts) if attempts else {}
    return {key: _locate_one(candidates[key], row, living, members) for key, row in best.items()}


def _locate_one(
    candidates: Sequence[Checkpoint],
    best: Checkpoint | None,
    living: Mapping[str, dict[str, str]],
    members: Mapping[str, int],
) -> ResumeLocation:
    lost = None if best is candidates[0] else candidates[0]
    if best is None:
        return ResumeLocation(step=0, members=1, hosts={}, lost=lost)
    return ResumeLocation(best.step, members[best.attempt_id], living[best.store], lost)
