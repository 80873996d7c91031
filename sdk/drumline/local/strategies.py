"""Devices of this machine for a local run, the engine's strategy for a StrategySpec, and which strategy is observed.

Observed is the run's strategy, or one that the program makes itself, as ported code does.
"""

import math
from collections.abc import Callable, Sequence
from typing import assert_never

import jax

import drumline.distribute as dist
from drumline.contracts.spec import (
    CentralStorageSpec,
    MirroredSpec,
    OneDeviceSpec,
    Platform,
    StrategySpec,
    TpuSpec,
    find_unsupported,
)
from drumline.distribute.observe import Observer
from drumline.distribute.observe.observation import on_first_use
from drumline.errors import DrumlineError, UnsupportedStrategyError
from drumline.slices import Blocks, SliceError

_CROSS_DEVICE_OPS: dict[str, Callable[[], dist.CrossDeviceOps]] = {
    "auto": dist.AllReduceCrossDeviceOps,
    "reduce_to_one": dist.ReductionToOneDevice,
    "hierarchical": dist.HierarchicalCopyAllReduce,
}


def build_strategy(spec: StrategySpec, devices: Sequence[jax.Device]) -> dist.Strategy:
    """The strategy that `spec` describes on `devices`, replica by replica and each one's logical devices in order.

    Raises UnsupportedStrategyError naming the kind where the engine has nothing for it, or not with these options;
    the engine's own errors for a parameter device that does not exist.
    """
    flaw = find_unsupported(spec)
    if flaw is not None:
        raise UnsupportedStrategyError(spec.kind, flaw[1])
    match spec:
        case MirroredSpec():
            return _mirrored(spec, devices)
        case CentralStorageSpec():
            return dist.CentralStorageStrategy(devices, spec.parameter_device, executor=spec.executor)
        case OneDeviceSpec():
            if len(devices) != 1:
                raise UnsupportedStrategyError(spec.kind, f"one_device has 1 replica, not {len(devices)}; use mirrored")
            return dist.OneDeviceStrategy(devices[0])
        case TpuSpec():
            return _tpu(spec, devices)
    assert_never(spec)


def _tpu(spec: TpuSpec, devices: Sequence[jax.Device]) -> dist.Strategy:
    blocks = Blocks.of(spec.computation_shape, spec.computation_stride, spec.device_order, spec.topology)
    replicas, rest = divmod(len(devices), blocks.cores)
    if rest or not replicas:
        needed = f"{blocks.cores} devices each; {len(devices)} devices do not fill them"
        raise UnsupportedStrategyError(spec.kind, f"replicas of shape {list(blocks.shape)} have {needed}")
    if not dist.tpu.tell_places(devices):
        try:
            places = blocks.places(replicas)
        except SliceError as error:
            raise UnsupportedStrategyError(spec.kind, str(error)) from None
        flat = [place for replica in places for place in replica]
        dist.tpu.set_device_places(dict(zip(devices, flat, strict=True)))
    resolver = dist.cluster_resolver.TPUClusterResolver()
    topology = dist.tpu.initialize_tpu_system(resolver)
    shown = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
    at = dict(zip(shown, topology.device_coordinates.reshape(-1, topology.mesh_rank).tolist(), strict=True))
    cores = [[at[device] for device in devices[start : start + blocks.cores]] for start in _starts(devices, blocks)]
    return dist.TPUStrategy(resolver, dist.tpu.DeviceAssignment(topology, cores))


def _starts(devices: Sequence[jax.Device], blocks: Blocks) -> range:
    return range(0, len(devices), blocks.cores)


def _mirrored(spec: MirroredSpec, devices: Sequence[jax.Device]) -> dist.Strategy:
    operations = _CROSS_DEVICE_OPS[spec.cross_device_ops]()
    if spec.batch == "global":
        return dist.MirroredStrategy(devices, operations, executor=spec.executor)
    return dist.contrib.MirroredStrategy(devices, cross_device_ops=operations)


def devices_per_replica(spec: StrategySpec) -> int:
    """How many logical devices each replica has."""
    return math.prod(spec.computation_shape or ()) if isinstance(spec, TpuSpec) else 1


class TooFewDevicesError(DrumlineError):
    """More replicas are wanted than the platform has devices on this machine."""


def choose_devices(count: int, platform: Platform) -> Sequence[jax.Device]:
    """`count` devices: the accelerators if there are enough or if named, else CPU devices made for this process.

    Must run before anything makes JAX start; raises ContextError if it already has with another number of CPU devices,
    TooFewDevicesError if the platform has too few.
    """
    dist.set_cpu_devices(count)
    if platform == "cpu":
        jax.config.update("jax_platforms", "cpu")
        return jax.devices("cpu")[:count]
    if platform == "any":
        accelerators = jax.devices()
        return accelerators[:count] if len(accelerators) >= count else jax.devices("cpu")[:count]
    present = _devices_of(platform)
    if len(present) < count:
        raise TooFewDevicesError(
            f"{count} replicas need {count} {platform} devices; this machine has {len(present)}: "
            f"use --replicas {len(present)} or --platform cpu"
            if present
            else f"this machine has no {platform} devices; use --platform cpu"
        )
    return present[:count]


def _devices_of(platform: str) -> Sequence[jax.Device]:
    try:
        return jax.devices(platform)
    except RuntimeError:
        return []


class ObservedStrategy:
    """Observes `given`, until the program first uses another one on the same devices before it has used `given`.

    So one strategy is observed, as a run has one placement and one count of steps. `every`: of how many calls one has
    its reductions told, and one those of large arrays too (None: chosen from what that costs).
    """

    def __init__(self, given: dist.Strategy, observer: Observer, *, every: tuple[int, int | None] = (10, None)) -> None:
        self._strategy = given
        self._observer = observer
        self._every = every
        self._observe(given)
        on_first_use(self._consider)

    @property
    def step(self) -> int:
        """How often its `run` was called, with those of the process that this one continues."""
        return self._strategy.step

    def continue_at(self, step: int) -> None:
        """Counts from `step` on."""
        self._strategy.continue_at(step)

    def _consider(self, other: dist.Strategy) -> None:
        is_used = bool(self._strategy.step or self._strategy.own_variables())
        # The default strategy, of variables outside every scope, places nothing.
        if is_used or not other.places_variables or not _devices(other) <= _devices(self._strategy):
            return
        other.continue_at(self._strategy.step)
        self._strategy.observe(None)
        self._strategy = other
        self._observe(other)

    def _observe(self, strategy: dist.Strategy) -> None:
        every, large_every = self._every
        strategy.observe(self._observer, reductions_every=every, large_reductions_every=large_every)


def _devices(strategy: dist.Strategy) -> set[object]:
    return {device for own in strategy.replica_devices for device in own}
