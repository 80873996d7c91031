"""JAX on this thread and this machine: whether it traces, under which settings, its devices, and values put on them.

Host values and plain arrays get onto devices without silent loss.
"""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache
from operator import attrgetter
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.extend.core import get_opaque_trace_state

from drumline.distribute.errors import ContextError, InvalidTypeError, InvalidValueError

#: Settings that each thread has for itself and that a trace depends on, with what sets them.
_TRACE_SETTINGS: dict[str, Any] = {
    "jax_enable_x64": jax.enable_x64,
    "jax_default_matmul_precision": jax.default_matmul_precision,
    "jax_numpy_dtype_promotion": jax.numpy_dtype_promotion,
    "jax_numpy_rank_promotion": jax.numpy_rank_promotion,
    "jax_default_prng_impl": jax.default_prng_impl,
    "jax_threefry_partitionable": jax.threefry_partitionable,
}
#: Of ``jax.config``: the settings that make another program, as for ``jax.jit``. No function of ours: each step asks.
read_trace_settings: Callable[[Any], tuple[Hashable, ...]] = attrgetter(*_TRACE_SETTINGS)

#: The trace that a program on shapes runs in, and its devices; none as a rule.
_abstract: list[tuple[Any, tuple[Any, ...]]] = []


def is_tracing() -> bool:
    """True inside a function that JAX is transforming: under jit, grad, vmap, scan, cond, a loop ..."""
    return bool(get_opaque_trace_state() != state_outside_traces())


@cache
def state_outside_traces() -> Any:
    """JAX's trace state outside every transformation; of a program that runs on shapes, that of the program itself."""
    if _abstract:
        return _abstract[-1][0]
    # As every new thread has it. JAX keeps its state per thread; this one may be inside a trace when it is first asked.
    with ThreadPoolExecutor(1) as fresh:
        return fresh.submit(get_opaque_trace_state).result()


@contextmanager
def run_abstractly(devices: Sequence[Any]) -> Iterator[None]:
    """Takes the trace that this thread is in for no trace: a whole program runs in it, on shapes (see planning).

    ``devices``: what it takes for those that JAX shows.
    """
    _abstract.append((get_opaque_trace_state(), tuple(devices)))
    state_outside_traces.cache_clear()
    try:
        yield
    finally:
        _abstract.pop()
        state_outside_traces.cache_clear()


def is_abstract() -> bool:
    """True while a program runs on shapes: its arrays are tracers, its devices may not be there."""
    return bool(_abstract)


def abstract_devices() -> tuple[Any, ...]:
    """The devices of a program that runs on shapes; none where arrays are real."""
    return _abstract[-1][1] if _abstract else ()


@contextmanager
def under_settings(settings: tuple[Hashable, ...]) -> Iterator[None]:
    """Gives this thread the settings that another one told."""
    with ExitStack() as stack:
        for setting, value in zip(_TRACE_SETTINGS.values(), settings, strict=True):
            stack.enter_context(setting(value))
        yield


def x64_enabled() -> bool:
    """Tells whether JAX keeps 64-bit types on this thread."""
    return bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]  # config attributes are made at run time


DeviceLike: TypeAlias = jax.Device | str

#: XLA's CPU client runs collectives on a pool sized by NPROC. Where it has less than two threads a device, queued steps
#: starve each other until XLA aborts; each thread more costs time in every step.
CPU_POOL_THREADS_PER_DEVICE = 4
#: Each of them has threads.
_MOST_CPU_DEVICES = 1024

_NAME = re.compile(
    r"^(?:/job:(?P<job>\w+))?(?:/replica:\d+)?(?:/task:(?P<task>\d+))?/?(?:device:)?(?P<platform>[a-z]+):(?P<index>\d+)$",
    re.IGNORECASE,
)


def set_cpu_devices(count: int) -> None:
    """Gives this process ``count`` CPU devices. Call it before anything makes JAX start its backend.

    Raises InvalidValueError for a number out of 1 to 1024, ContextError when JAX already started with another.
    """
    if not isinstance(count, (int, np.integer)) or isinstance(count, bool) or not 1 <= count <= _MOST_CPU_DEVICES:
        raise InvalidValueError(f"set_cpu_devices takes a number from 1 to {_MOST_CPU_DEVICES}; got {count!r:.80}")
    count = int(count)
    os.environ.setdefault("NPROC", str(max(os.cpu_count() or 1, CPU_POOL_THREADS_PER_DEVICE * count)))
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError as error:
        present = len(jax.devices("cpu"))
        if present != count:
            raise ContextError(
                f"JAX already started with {present} CPU devices; call set_cpu_devices({count}) before it is used"
            ) from error


def default_devices(count: int | None = None) -> tuple[jax.Device, ...]:
    """All local accelerators, else all local CPU devices; the first ``count`` of them if given."""
    devices = abstract_devices() or tuple(jax.local_devices())
    return devices[:count] if count is not None else devices


def all_devices() -> tuple[jax.Device, ...]:
    """The accelerators, else the CPU devices, of all processes of the program, those of process 0 first."""
    return abstract_devices() or tuple(sorted(jax.devices(), key=lambda device: (device.process_index, device.id)))


def resolve_devices(devices: Sequence[DeviceLike] | None) -> tuple[jax.Device, ...]:
    """Devices by object or by name ("GPU:0", "/device:CPU:1"); None or nothing means the default devices.

    Raises InvalidValueError for an unknown, missing or repeated device, ContextError for devices of several tasks.
    """
    if not devices:
        return default_devices()
    if isinstance(devices, str):
        devices = (devices,)
    if not isinstance(devices, Iterable):
        raise InvalidTypeError(f"devices must be a list of devices or of names such as 'GPU:0'; got {devices!r:.80}")
    tasks = {_task(device) for device in devices} - {None}
    if len(tasks) > 1:
        raise ContextError(
            f"devices {list(devices)} belong to {len(tasks)} tasks; a name means a device of this process: start one "
            "process per task, call dist.initialize() in each, and leave the devices out to use those of all"
        )
    resolved = tuple(resolve_device(device) for device in devices)
    if len(set(resolved)) != len(resolved):
        raise InvalidValueError(f"devices {list(map(str, devices))} name a device twice; each replica needs its own")
    return resolved


def resolve_device(device: DeviceLike) -> jax.Device:
    """One device by object or name; raises InvalidValueError naming what is there."""
    if isinstance(device, jax.Device):
        return device
    match = _NAME.match(device) if isinstance(device, str) else None
    if match is None:
        raise InvalidValueError(f"{device!r:.80} is no device; pass a jax.Device or a name such as 'GPU:0' or 'CPU:1'")
    platform, index = match["platform"].lower(), int(match["index"])
    present = _present(platform)
    if index >= len(present):
        raise InvalidValueError(
            f"device {device!r:.80} does not exist: this process has {len(present)} {platform:.20} devices"
        )
    return present[index]


def _present(platform: str) -> list[jax.Device]:
    if planned := [device for device in abstract_devices() if device.platform == platform]:
        return planned
    try:
        return list(jax.local_devices(backend=platform))
    except RuntimeError:
        return []


def device_name(device: jax.Device) -> str:
    """The name ``resolve_device`` understands, such as "CPU:0", of a device of this process."""
    platform = "GPU" if device.platform in ("cuda", "rocm", "gpu") else device.platform.upper()
    local = jax.local_devices(backend=device.platform)
    return f"{platform}:{local.index(device)}"


def _task(device: DeviceLike) -> tuple[str, str] | None:
    match = _NAME.match(device) if isinstance(device, str) else None
    return (match["job"] or "", match["task"]) if match and match["task"] else None


_NARROW = {np.dtype(np.int64): np.iinfo(np.int32), np.dtype(np.uint64): np.iinfo(np.uint32)}


def check_host_array(value: Any) -> np.ndarray[Any, Any]:
    """``value`` as a numpy array that JAX can hold.

    Raises InvalidValueError for a 64-bit integer that does not fit 32 bits while ``jax_enable_x64`` is off (JAX would
    wrap it silently), InvalidTypeError for strings and objects.
    """
    array = np.asarray(value)
    if array.dtype.kind in "OSUM" or array.dtype.kind == "m":
        raise InvalidTypeError(f"a value of dtype {array.dtype} ({value!r:.60}) cannot be placed on a device")
    limits = _NARROW.get(array.dtype)
    if limits is not None and array.size and not x64_enabled():
        extreme = array.max() if array.max() > limits.max else array.min()
        if extreme > limits.max or extreme < limits.min:
            raise InvalidValueError(
                f"{array.dtype} value {extreme} does not fit {limits.dtype}; "
                "jax.config.update('jax_enable_x64', True) keeps 64-bit integers"
            )
    return array


def put(array: Any, where: Any) -> jax.Array:
    """``jax.device_put`` of one array, typed. Of a program that runs on shapes nothing lies anywhere."""
    if is_abstract():
        return jax.numpy.asarray(array)
    placed: jax.Array = jax.device_put(array, where)
    return placed


def refuse_deleted(values: Sequence[Any]) -> None:
    """RuntimeError where one of ``values`` is an array whose memory was given away, DonatedError where by us.

    A compiled program that is called with one on several CPU devices ends the process (JAX 0.10.2).
    """
    try:
        if is_abstract() or True not in map(_is_deleted, values):
            return
    except AttributeError:  # a Python number among them
        pass
    for value in values:
        if isinstance(value, jax.Array) and value.is_deleted():
            np.asarray(value)  # says so


_is_deleted = operator.methodcaller("is_deleted")


def own_copy(value: Any) -> Any:
    """The copy that this process has of an array that several have whole; any other value as it is."""
    if isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer) and not value.is_fully_addressable:
        return value.addressable_data(0) if value.is_fully_replicated else value
    return value


def copy_if_host(value: Any) -> Any:
    """A copy of a host array, other values as they are.

    JAX reads host memory later or shares it, and the caller may change it as soon as he has control again.
    """
    return np.array(value) if isinstance(value, np.ndarray) else value
