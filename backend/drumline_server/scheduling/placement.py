"""Which runs start now, and where: a pure function over a snapshot of free devices and the queue."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from drumline.slices import MAX_SIMULATED_DEVICES, Place, find_places, find_places_over_hosts
from drumline_server.base.shapes import Shape, Share, Stores, fit, slices_of

PREFERRED = ("tpu", "gpu", "cpu")
"""Where a run that takes any platform goes first."""


@dataclass(frozen=True, slots=True)
class FreeDevice:
    """A device that may be given out."""

    id: str
    host_id: str
    platform: str
    position: int
    place: Place | None = None
    """On its slice: (x, y, z, core). A run gets a box of such devices, whose links no other run uses."""
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """Devices of one platform on one host that a run holds, and when its time limit ends it; None if it has none."""

    run_id: str
    host_id: str
    platform: str
    devices: int
    at: int | None


@dataclass(frozen=True, slots=True)
class QueuedRun:
    """A run that waits: the room it needs, and how long (microseconds) it may hold it; None if nobody knows."""

    id: str
    shape: Shape
    limit_us: int | None
    avoid: str | None = None
    """The host where its last attempt failed: taken only if no other fits."""
    only: frozenset[str] | None = None
    """The hosts that can read its checkpoints; None if any host will do."""
    members: int = 1
    """How many saved the checkpoint that it resumes from."""
    priority: int = 0
    created_at: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The fleet and the queue at `now`; `queue` in the order in which runs are considered."""

    now: int
    free: tuple[FreeDevice, ...]
    releases: tuple[Release, ...]
    queue: tuple[QueuedRun, ...]
    stores: Stores = field(default_factory=dict)
    slices: Mapping[str, str] = field(default_factory=dict)
    """By host the TPU slice that it is of."""


@dataclass(frozen=True, slots=True)
class DeviceAssignment:
    """A device, and the replica and logical position that it gets."""

    device_id: str
    replica: int
    logical: int


@dataclass(frozen=True, slots=True)
class MemberPlacement:
    """What one host gives to a gang.

    The replicas of a gang are numbered through, in the order of its members; on a slice as they lie on it.
    """

    host_id: str
    devices: tuple[DeviceAssignment, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """A run that starts now; its members by rank, each on a host of its own."""

    run_id: str
    members: tuple[MemberPlacement, ...]


@dataclass(frozen=True, slots=True)
class Reservation:
    """The room that a blocked run waits for, from `at` on; None where nobody knows when that is."""

    run_id: str
    at: int | None
    spare: dict[str, int]
    """By host that the gang will use: how many devices will be left beside it."""

    def is_over_before(self, until: int | None) -> bool:
        """Whether devices that are held `until` then are back in time."""
        return self.at is not None and until is not None and until <= self.at


@dataclass(frozen=True, slots=True)
class SchedulingResult:
    """What one look at the queue gives: who starts, and what is kept for whom, by platform."""

    placements: tuple[Placement, ...]
    reservations: Mapping[str, Reservation]


def place(snapshot: Snapshot) -> SchedulingResult:
    """The runs of the queue that can start now, with their devices, and what is reserved for those that cannot."""
    table = _Table(snapshot)
    placements: list[Placement] = []
    blocked = _Blocked()
    for run in snapshot.queue:
        restricted_platforms = table.restricted_platforms(run)
        if blocked.includes(run, restricted_platforms):
            continue
        placement = table.place(run)
        if placement is not None:
            placements.append(placement)
        else:
            blocked.add(run, restricted_platforms)
            table.reserve(run)
    return SchedulingResult(tuple(placements), table.reservations)


class _Blocked:
    """Kinds of runs that did not fit: room only shrinks, so they do not fit later in the same look.

    A run's time limit decides only on which platforms it is held off by a reservation. So runs whose limits all differ
    are of a few kinds, and a long queue of them costs no more than one of equals.
    """

    def __init__(self) -> None:
        self._kinds: dict[tuple[Shape, frozenset[str] | None], list[frozenset[str]]] = {}

    def includes(self, run: QueuedRun, restricted_platforms: frozenset[str]) -> bool:
        """Whether a run of that shape did not fit that was held off on these platforms, or on fewer."""
        return any(fewer <= restricted_platforms for fewer in self._kinds.get((run.shape, run.only), ()))

    def add(self, run: QueuedRun, restricted_platforms: frozenset[str]) -> None:
        self._kinds.setdefault((run.shape, run.only), []).append(restricted_platforms)


def platforms_of(shape: Shape) -> Iterable[str]:
    """Where the shape may go, best first."""
    return PREFERRED if shape.platform == "any" else (shape.platform,)


@dataclass(slots=True)
class _Table:
    """The devices while they are assigned."""

    snapshot: Snapshot
    free: dict[str, dict[str, list[FreeDevice]]] = field(default_factory=dict)
    """By platform and host, in the order of their positions."""
    releases: dict[str, list[Release]] = field(default_factory=dict)
    reservations: dict[str, Reservation] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for device in sorted(self.snapshot.free, key=lambda device: (device.host_id, device.position)):
            self.free.setdefault(device.platform, {}).setdefault(device.host_id, []).append(device)
        for release in self.snapshot.releases:
            self.releases.setdefault(release.platform, []).append(release)

    def restricted_platforms(self, run: QueuedRun) -> frozenset[str]:
        """Platforms where the run must leave reserved room alone."""
        until = self._until(run)
        return frozenset(
            platform
            for platform in platforms_of(run.shape)
            if platform in self.reservations and not self.reservations[platform].is_over_before(until)
        )

    def place(self, run: QueuedRun) -> Placement | None:
        """Gives the run its devices, if there is room that is not kept for another."""
        # Elsewhere first after a failure, on the same host only where nothing else has room.
        for avoid in (run.avoid, None) if run.avoid else (None,):
            for platform in platforms_of(run.shape):
                placement = self._place_on(platform, run, avoid)
                if placement is not None:
                    return placement
        return None

    def _place_on(self, platform: str, run: QueuedRun, avoid: str | None) -> Placement | None:
        # What several hosts of a slice saved is resumed over as many of them.
        resumed = self._box(platform, run, avoid, run.members) if run.members > 1 else None
        if resumed is not None:
            return self._assign_box(run, platform, resumed)
        shape = run.shape.on_one_host() if run.shape.is_one_slice else run.shape
        shares = fit(self._available_devices(platform, run, avoid), shape, self.snapshot.stores, run.members)
        if shares is not None:
            return self._assign_devices(run, platform, shares)
        box = self._box(platform, run, avoid, 0)
        return None if box is None else self._assign_box(run, platform, box)

    def _box(self, platform: str, run: QueuedRun, avoid: str | None, hosts: int) -> list[list[FreeDevice]] | None:
        """[replica][logical]: free devices of several hosts of one slice, that no run ahead of this one waits for."""
        if not run.shape.is_one_slice or run.shape.blocks is None:
            return None
        reservation = self.reservations.get(platform)
        kept = {} if reservation is None or reservation.is_over_before(self._until(run)) else reservation.spare
        slices = slices_of(run.shape, self.snapshot.slices, self.snapshot.stores)
        by_slice: dict[str, list[FreeDevice]] = {}
        for host, devices in self.free.get(platform, {}).items():
            if host in slices and host not in kept and host != avoid and (run.only is None or host in run.only):
                by_slice.setdefault(slices[host], []).extend(devices)
        for _, devices in sorted(by_slice.items()):
            at = {device.place: device for device in devices if device.place is not None}
            if len(at) < len(devices) or is_too_much_to_simulate(devices, run.shape):
                continue  # two slices go by one name
            host_of = {place: device.host_id for place, device in at.items()}
            found = find_places_over_hosts(host_of, run.shape.replicas, run.shape.blocks, hosts)
            if found is not None:
                return [[at[place] for place in replica] for replica in found]
        return None

    def reserve(self, run: QueuedRun) -> None:
        """Keeps the room that will be there first, unless a run before this one has a reservation on that platform."""
        if all(platform in self.reservations for platform in platforms_of(run.shape)):
            return  # looking for the room costs a sort of all that is held
        rooms = {platform: self._earliest_reservation(platform, run) for platform in platforms_of(run.shape)}
        found = [(platform, room) for platform, room in rooms.items() if room is not None]
        if found:
            platform, room = min(found, key=lambda item: (item[1].at is None, item[1].at or 0))
            self.reservations.setdefault(platform, room)

    def _available_devices(self, platform: str, run: QueuedRun, avoid: str | None) -> dict[str, int]:
        """Devices of each host that the run may take."""
        usable = self._devices_after(platform, run, (), boxes=True)
        counts = {host: count for host, count in usable.items() if host != avoid}
        reservation = self.reservations.get(platform)
        if reservation is None or reservation.is_over_before(self._until(run)):
            return counts
        return {host: min(count, reservation.spare.get(host, count)) for host, count in counts.items()}

    def _fit(self, devices: Mapping[str, int], run: QueuedRun) -> list[Share] | None:
        """By numbers of devices alone, over the hosts of a slice too."""
        shape, stores = run.shape, self.snapshot.stores
        apart = slices_of(shape, self.snapshot.slices, stores) if shape.is_one_slice else stores
        return fit(devices, shape.by_slice(), apart, run.members)

    def _until(self, run: QueuedRun) -> int | None:
        return None if run.limit_us is None else self.snapshot.now + run.limit_us

    def _assign_devices(self, run: QueuedRun, platform: str, shares: list[Share]) -> Placement:
        until, reservation = self._until(run), self.reservations.get(platform)
        per_replica = run.shape.devices_per_replica
        members: list[MemberPlacement] = []
        first_replica = 0
        for share in shares:
            count = share.replicas * per_replica
            devices = self.free[platform][share.host_id]
            taken = _choose(devices, share.replicas, run.shape)
            chosen = {device.id for device in taken}
            self.free[platform][share.host_id] = [device for device in devices if device.id not in chosen]
            if reservation and share.host_id in reservation.spare and not reservation.is_over_before(until):
                reservation.spare[share.host_id] -= count
            self.releases.setdefault(platform, []).append(Release(run.id, share.host_id, platform, count, until))
            assigned = tuple(
                DeviceAssignment(device.id, first_replica + index // per_replica, index % per_replica)
                for index, device in enumerate(taken)
            )
            members.append(MemberPlacement(share.host_id, assigned))
            first_replica += share.replicas
        return Placement(run.id, tuple(members))

    def _assign_box(self, run: QueuedRun, platform: str, box: list[list[FreeDevice]]) -> Placement:
        """Its hosts by rank in the order in which they lie on the slice: x fastest, then y and z."""
        by_host: dict[str, list[DeviceAssignment]] = {}
        in_order = sorted((device for replica in box for device in replica), key=_along_slice)
        for device in in_order:
            by_host.setdefault(device.host_id, [])
        for replica, devices in enumerate(box):
            for logical, device in enumerate(devices):
                by_host[device.host_id].append(DeviceAssignment(device.id, replica, logical))
        for host, assigned in by_host.items():
            chosen = {each.device_id for each in assigned}
            self.free[platform][host] = [device for device in self.free[platform][host] if device.id not in chosen]
            release = Release(run.id, host, platform, len(assigned), self._until(run))
            self.releases.setdefault(platform, []).append(release)
        return Placement(run.id, tuple(MemberPlacement(host, tuple(assigned)) for host, assigned in by_host.items()))

    def _earliest_reservation(self, platform: str, run: QueuedRun) -> Reservation | None:
        """The room after as few ends of runs as are needed, those with a known end first; None if there never is."""
        releases = sorted(
            self.releases.get(platform, ()),
            key=lambda release: (release.at is None, release.at or 0, release.host_id, release.run_id),
        )
        fewest, most = 0, len(releases)
        if self._fit(self._devices_after(platform, run, releases), run) is None:
            return None
        # Bisection: more devices given back never fit less.
        while fewest < most:
            middle = (fewest + most) // 2
            if self._fit(self._devices_after(platform, run, releases[:middle]), run) is None:
                fewest = middle + 1
            else:
                most = middle
        at = releases[fewest - 1].at if fewest else self.snapshot.now
        # Runs that end at one moment give back at once; what this run does not need of that is spare.
        together = [release for release in releases[fewest:] if at is not None and release.at == at]
        counts = self._devices_after(platform, run, [*releases[:fewest], *together])
        shares = self._fit(counts, run)
        assert shares is not None
        per_replica = run.shape.devices_per_replica
        spare = {share.host_id: counts[share.host_id] - share.replicas * per_replica for share in shares}
        return Reservation(run.id, at, spare)

    def _devices_after(
        self, platform: str, run: QueuedRun, releases: Iterable[Release], *, boxes: bool = False
    ) -> dict[str, int]:
        """Devices by host, of those that the run may have, once others have given theirs back.

        `boxes`: of a run that may have several hosts of a slice too those of boxes on one of them.
        """
        here = self.free.get(platform, {})
        counts = {host: usable_devices(devices, run.shape, boxes=boxes) for host, devices in here.items()}
        for release in releases:
            counts[release.host_id] = counts.get(release.host_id, 0) + release.devices
        return {host: count for host, count in counts.items() if run.only is None or host in run.only}


def is_too_much_to_simulate(devices: Sequence[FreeDevice], shape: Shape) -> bool:
    """Whether the devices are simulated, and the shape takes more than a machine can simulate."""
    return shape.devices > MAX_SIMULATED_DEVICES and bool(devices) and devices[0].simulated


def usable_devices(devices: Sequence[FreeDevice], shape: Shape, *, boxes: bool = False) -> int:
    """How many of a host's devices the shape can use.

    Of simulated ones none where it takes more than a machine can simulate; of those on a slice as many as form a box.
    Where the shape may have several hosts of the slice all of them, unless just those of `boxes` are asked for.
    """
    if not devices or is_too_much_to_simulate(devices, shape):
        return 0
    if shape.is_one_slice and not boxes:
        return len(devices)
    places = [device.place for device in devices if device.place is not None]
    if len(places) < len(devices) or find_places(places, shape.replicas, shape.blocks) is not None:
        return len(devices)
    fewer = range(min(shape.replicas - 1, len(places) // shape.devices_per_replica), 0, -1)
    return next((n * shape.devices_per_replica for n in fewer if find_places(places, n, shape.blocks)), 0)


def _choose(devices: Sequence[FreeDevice], replicas: int, shape: Shape) -> list[FreeDevice]:
    """Devices of a host for so many replicas, by replica and logical position.

    Those of a box where they lie on a slice, else the first.
    """
    at = {device.place: device for device in devices if device.place is not None}
    places = find_places(at, replicas, shape.blocks) if at else None
    if places is None:
        return list(devices[: replicas * shape.devices_per_replica])
    return [at[place] for replica in places for place in replica]


def _along_slice(device: FreeDevice) -> tuple[int, ...]:
    x, y, z, core = device.place or (0, 0, 0, 0)
    return z, y, x, core


AGEING_MAX = 2000
"""What ageing can add, in points of priority: as much as lies between the lowest and the highest."""


@dataclass(frozen=True, slots=True)
class Ageing:
    """How fast waiting runs gain priority: one point every `unit_us` microseconds."""

    unit_us: int

    @property
    def most_us(self) -> int:
        """The waiting time after which a run gains nothing more."""
        return AGEING_MAX * self.unit_us

    def weight(self, priority: int, created_at: int, now: int) -> int:
        """The effective priority in microseconds: points times the unit, so that it is exact."""
        return priority * self.unit_us + min(max(now - created_at, 0), self.most_us)


def in_order(runs: Iterable[QueuedRun], ageing: Ageing, now: int) -> tuple[QueuedRun, ...]:
    """The runs as the scheduler considers them at `now`."""
    return tuple(
        sorted(runs, key=lambda run: (-ageing.weight(run.priority, run.created_at, now), run.created_at, run.id))
    )
