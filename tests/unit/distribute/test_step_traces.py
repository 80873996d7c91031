"""Some calls of `strategy.run` are traced with what devices do in them, and the program continues in any case."""

import base64
import io
import time
import zipfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import drumline.distribute as dist
from drumline.contracts.events import GapEvent
from drumline.contracts.profiles import TracedCall
from drumline.distribute.observe import StepRecord
from drumline_worker.runner import step_traces
from drumline_worker.runner.step_traces import ProfileReports, StepTraces, TracedSteps, prepare_reading
from drumline_worker.runner.trace_reading import TracedDevice, read_trace

DEVICES = [TracedDevice(number, number, f"dev_0{number:025d}") for number in range(2)]


class Channel:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def send(self, kind: str, **fields: object) -> None:
        self.sent.append({"kind": kind, **fields})


class Traced:
    """An observer that traces every `every`-th call."""

    def __init__(self, every: int) -> None:
        self.channel, self.busy, self.calls = Channel(), 0, list[TracedSteps]()
        self.records: list[StepRecord] = []
        self._traces = StepTraces(every, self.channel, on_traced=self.calls.append, on_busy=self._note_busy)  # type: ignore[arg-type]  # all of a Channel that is used
        self.wants_trace, self.trace = self._traces.wants, self._traces.trace

    def _note_busy(self) -> None:
        self.busy += 1

    def step_ended(self, record: StepRecord) -> None:
        self.records.append(record)

    def placement(self, record: Any) -> None: ...
    def variable_created(self, record: Any) -> None: ...
    def step_began(self, step: int) -> None: ...
    def collective(self, record: Any) -> None: ...
    def reduction(self, record: Any) -> None: ...

    def read(self, which: TracedSteps, step: int = 7) -> tuple[TracedCall, dict[str, Any]]:
        """What is sent of it, and the figures of a step."""
        sampled = ProfileReports(self.channel, DEVICES, 3).send(which, step)  # type: ignore[arg-type]  # as above
        fields = {name: value for name, value in self.channel.sent[-1].items() if name != "kind"}
        return TracedCall.model_validate_json(TracedCall(**fields).model_dump_json()), sampled


@pytest.fixture(autouse=True)
def ready() -> None:
    """To read traces, as in a process that takes some: here a warning is an error, as a program may have it."""
    prepare_reading()


def train(strategy: dist.Strategy, observer: Traced, calls: int) -> float:
    """Descends along gradients that all devices sum; the variable afterwards."""
    strategy.observe(observer)
    with strategy.scope():
        weights = dist.Variable(jnp.ones((64, 64)), name="w")

    def step(x: Any) -> Any:
        grown = dist.all_reduce("mean", x @ weights.value)
        weights.assign(weights.value * 0.5 + grown * 1e-3)
        return grown.sum()

    for _ in range(calls):
        strategy.run(step, args=(jnp.ones((64, 64)),))
    return float(weights.value.sum())


def test_each_device_has_its_operations_and_the_time_that_they_took(
    two: dist.MirroredStrategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(two.window, "limit", None)  # no call waits for those before it, also of other tests
    observer = Traced(3)
    plain = dist.MirroredStrategy(jax.devices()[:2])
    assert train(two, observer, 7) == train(plain, Traced(100), 7)
    assert [one.steps for one in observer.calls] == [range(2, 3), range(5, 6)]
    call, sampled = observer.read(observer.calls[0])
    assert (call.step, call.call, call.steps, call.unmeasured) == (7, 2, 1, None)
    for device, lane in zip(call.devices, call.content.lanes, strict=True):
        assert device.computing_ns + device.collective_ns - device.both_ns + device.idle_ns == call.span_ns
        names = [call.content.operations[number] for number in lane.operations]
        assert {one.is_collective for one in names} == {True, False}
        assert device.operations == len(names)
        assert list(lane.begins_ns) == sorted(lane.begins_ns)
        assert lane.begins_ns[-1] + lane.durations_ns[-1] <= call.span_ns
        exchanges = [ns for one, ns in zip(names, lane.durations_ns, strict=True) if one.is_collective]
        assert device.collective_ns == sum(exchanges)
    assert [device.device for device in call.devices] == [device.name for device in DEVICES]
    assert sampled["collective_ms"] == pytest.approx(sum(each.collective_ns for each in call.devices) / 2e6)
    assert call.file is not None
    files = zipfile.ZipFile(io.BytesIO(base64.b64decode(call.file))).namelist()
    assert files == [f"plugins/profile/step_7/rank_3.{kind}" for kind in ("trace.json.gz", "xplane.pb")]
    assert not observer.calls[0].directory.exists()
    # What tracing takes is no time of dispatch.
    assert [record.held_ns > 0 for record in observer.records if record.step in (1, 2)] == [False, True]


def test_a_program_that_traces_itself_keeps_its_trace_and_ours_says_once_that_it_is_off(
    two: dist.MirroredStrategy, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    observer = Traced(2)
    jax.profiler.start_trace(str(tmp_path))
    train(two, observer, 6)
    jax.profiler.stop_trace()
    assert list(tmp_path.rglob("*.xplane.pb"))
    assert (observer.calls, observer.busy) == ([], 3)
    assert capfd.readouterr().err.count("steps are not traced while jax.profiler says") == 1


def test_bounds_of_number_and_length_are_told(two: dist.MirroredStrategy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_traces, "MAX_PROFILES", 1)
    monkeypatch.setattr(step_traces, "MAX_TRACE_S", 0.0)
    monkeypatch.setattr(step_traces, "MAX_PROFILE_BYTES", 100)
    observer = Traced(1)
    two.observe(observer)
    naps = [two.run(lambda: jax.pure_callback(_nap, jax.ShapeDtypeStruct((), jnp.float32))) for _ in range(4)]
    jax.block_until_ready([two.local_results(each) for each in naps])  # a callback in a process that ends aborts it
    (traced,) = observer.calls
    call, sampled = observer.read(traced)
    assert (call.unmeasured, sampled) == ("long", {"unknown": "long"})
    assert (call.file, call.file_left_out, call.file_bytes > 100) == (None, "large", True)
    (gap,) = (one for one in observer.channel.sent if one["kind"] == "gap")
    assert GapEvent.model_validate({"seq": 1, "at": "2026-01-01T00:00:00Z", **gap}).what == "profile"


def _nap() -> Any:  # Any: an array of NumPy
    time.sleep(0.2)
    return jnp.float32(1).__array__()


def event(metadata: int, begin_ps: int, duration_ps: int, operation: str = "", more: str = "") -> str:
    stats = f'stats {{ metadata_id: 1 str_value: "{operation}" }}' if operation else ""
    return f"events {{ metadata_id: {metadata} offset_ps: {begin_ps} duration_ps: {duration_ps} {stats} {more} }}"


def test_of_a_gpu_streams_that_overlap_are_told_apart_and_a_loop_is_what_it_holds() -> None:
    """A trace of the form that GPUs have; the loop holds an exchange, beside which another stream computes."""
    names = {1: "loop", 2: "ncclDevKernel_AllReduce_Sum", 3: "gemm", 4: "XLA Module"}
    text = f"""
        planes {{ name: "/device:GPU:0"
          lines {{ name: "Stream #1(Compute)"
            {event(1, 0, 9_000, "while.1")} {event(2, 3_000, 4_000, "all-reduce.1")} }}
          lines {{ name: "Stream #2(Compute)" {event(3, 5_000, 1_000, "dot.1")} {event(3, 11_000, 1_000, "dot.2")} }}
          lines {{ name: "XLA Modules" {event(4, 0, 90_000)} }}
          {" ".join(f'event_metadata {{ key: {n} value {{ id: {n} name: "{name}" }} }}' for n, name in names.items())}
          stat_metadata {{ key: 1 value {{ id: 1 name: "hlo_op" }} }} }}
        planes {{ name: "/device:GPU:7" lines {{ name: "Stream #1(Compute)" {event(3, 0, 1_000)} }} }}
    """
    data = jax.profiler.ProfileData.from_serialized_xspace(
        jax.profiler.ProfileData.text_proto_to_serialized_xspace(text)
    )
    call = TracedCall(step=0, call=0, **read_trace(data, DEVICES))
    first, second = call.devices
    assert (call.span_ns, first.computing_ns, first.collective_ns, first.both_ns, first.idle_ns) == (12, 7, 4, 1, 2)
    assert (second.operations, second.idle_ns) == (0, 12)
    assert [one.name for one in call.content.operations if one.is_collective] == ["ncclDevKernel_AllReduce_Sum"]


def test_devices_of_another_process_of_a_gang_are_told_by_their_own_ids_and_a_wait_makes_a_collective() -> None:
    """Of the form that CPUs have: threads of the host, each event with its device."""
    of = "stats { metadata_id: 2 int64_value: 2049 }"
    text = f"""
        planes {{ name: "/host:CPU" lines {{ name: "pool/1"
          {event(1, 0, 4_000, "while.1", of)} {event(1, 1_000, 2_000, "odd.2", of)} {event(2, 1_500, 1_000)} }}
          event_metadata {{ key: 1 value {{ id: 1 name: "op" }} }}
          event_metadata {{ key: 2 value {{ id: 2 name: "Rendezvous" }} }}
          stat_metadata {{ key: 1 value {{ id: 1 name: "hlo_op" }} }}
          stat_metadata {{ key: 2 value {{ id: 2 name: "device_ordinal" }} }} }}
    """
    data = jax.profiler.ProfileData.from_serialized_xspace(
        jax.profiler.ProfileData.text_proto_to_serialized_xspace(text)
    )
    devices = [TracedDevice(2048 + number, number, device.name) for number, device in enumerate(DEVICES)]
    call = TracedCall(step=0, call=0, **read_trace(data, devices))
    assert [(each.computing_ns, each.collective_ns, each.operations) for each in call.devices] == [(0, 0, 0), (2, 2, 2)]
    assert [one.name for one in call.content.operations if one.is_collective] == ["odd.2"]


def test_where_the_platform_tells_no_operations_no_time_is_invented() -> None:
    data = jax.profiler.ProfileData.from_serialized_xspace(
        jax.profiler.ProfileData.text_proto_to_serialized_xspace('planes { name: "/host:CPU" }')
    )
    assert read_trace(data, DEVICES) == {"unmeasured": "platform"}
