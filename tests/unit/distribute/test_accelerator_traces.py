"""Traces of accelerators are read in the forms that their profilers write.

The traces are made, with the planes, lines, statistics and names of operations that public traces of real ones have
(tests/traces/public.json, read by `make test-traces`), and with HLO instructions as the compiler of TPUs makes them.
"""

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import pytest

from drumline.contracts.profiles import TracedCall
from drumline_worker.runner import trace_reading
from drumline_worker.runner.step_traces import prepare_reading
from drumline_worker.runner.trace_reading import TracedDevice, TraceTooLargeError, read_trace
from drumline_worker.runner.traced_operations import Kind, by_instruction, by_kernel
from traces import read_public

DEVICES = [TracedDevice(4 + number, number, f"dev_0{number:025d}") for number in range(2)]
"""Of the second host of two: its planes count from 0, as they do in a real trace of such a host."""
Spans = Iterable[tuple[str, int, int] | tuple[str, int, int, str]]
"""Name, begin, nanoseconds, hlo_op."""

SUM = (
    "%all-reduce.3 = f32[512,512]{1,0:T(8,128)} all-reduce(f32[512,512]{1,0:T(8,128)} %fusion), channel_id=1,"
    " replica_groups=[4,2]<=[2,4]T(1,0), use_global_device_ids=true, to_apply=%region_0.3.clone"
)
MATMUL = (
    "%fusion.2 = f32[512,512]{1,0:T(8,128)} fusion(f32[512,512]{1,0:T(8,128)} %copy-done.4), kind=kOutput,"
    " calls=%fused_computation"
)
COPY = "%copy-start = (f32[8]{0:T(8)S(5)}, f32[8]{0:T(8)}, u32[]{:S(2)}) copy-start(f32[8]{0:T(8)} %p)"
COPIED = "%copy-done = f32[8]{0:T(8)S(5)} copy-done((f32[8]{0:T(8)S(5)}, f32[8]{0:T(8)}, u32[]{:S(2)}) %copy-start)"
GATHER = "%all-gather-start = (f32[8]{0:T(8)}, f32[16]{0:T(8)}) all-gather-start(f32[8]{0:T(8)} %p), channel_id=2"


@pytest.fixture(autouse=True)
def ready() -> None:
    prepare_reading()


def plane(name: str, **lines: Spans) -> str:
    """An XPlane as text. In names of lines a space is `_`."""
    numbers: dict[str, int] = {}
    parts = []
    for line, spans in lines.items():
        events = []
        for operation, begin, duration, *stats in spans:
            number = numbers.setdefault(operation, len(numbers) + 1)
            stat = "".join(f'stats {{ metadata_id: 1 str_value: "{stat}" }}' for stat in stats)
            events.append(
                f"events {{ metadata_id: {number} offset_ps: {begin * 1000} duration_ps: {duration * 1000} {stat} }}"
            )
        parts.append(f'lines {{ name: "{line.replace("_", " ")}" {" ".join(events)} }}')
    metadata = (f'event_metadata {{ key: {n} value {{ id: {n} name: "{name}" }} }}' for name, n in numbers.items())
    stat_names = 'stat_metadata { key: 1 value { id: 1 name: "hlo_op" } }'
    return f'planes {{ name: "{name}" {" ".join(parts)} {" ".join(metadata)} {stat_names} }}'


def parsed_bytes(*planes: str) -> bytes:
    made: bytes = jax.profiler.ProfileData.text_proto_to_serialized_xspace("\n".join(planes))
    return made


def parsed(*planes: str) -> Any:  # Any: ProfileData, without types
    return jax.profiler.ProfileData.from_serialized_xspace(parsed_bytes(*planes))


def read(*planes: str) -> TracedCall:
    return TracedCall(step=0, call=0, **read_trace(parsed(*planes), DEVICES))


def times_of(call: TracedCall) -> list[tuple[int, int, int, int]]:
    return [(each.computing_ns, each.collective_ns, each.both_ns, each.idle_ns) for each in call.devices]


def chip(number: int, begin: int, **more: Spans) -> str:
    """Begins its program at `begin`; all chips sum at 100."""
    return plane(
        f"/device:TPU:{number}",
        Steps=[("0", begin, 1000)],
        XLA_Modules=[("jit_step(9646411105960254074)", begin, 160 - begin)],
        XLA_Ops=[(SUM, 100, 20), (MATMUL, 120, 10), (COPY, 130, 1), (COPIED, 131, 29)],
        XLA_TraceMe=[("dependency-wait", begin, 0), ("barrier-cores", begin, 100 - begin)],
        **more,
    )


def test_a_tpu_waits_for_the_others_before_its_first_exchange_and_its_instructions_are_told_by_name() -> None:
    """Of one chip only the profiler writes what is in flight: it counts for neither, or one would seem to wait more."""
    copies = [(COPY, 130, 30, "copy-done"), (GATHER, 0, 160, "all-gather-done")]
    call = read(
        chip(0, 98, Async_XLA_Ops=copies),
        chip(1, 40, Async_XLA_Ops=[]),
        plane("/device:TPU:0 SparseCore 0", XLA_Ops=[(MATMUL, 0, 500)]),
        plane("/host:CPU", main=[("PjitFunction(step)", 0, 900)]),
    )
    assert call.span_ns == 120
    assert times_of(call) == [(11, 22, 0, 87), (11, 80, 0, 29)]
    assert {(one.name, one.is_collective) for one in call.content.operations} == {
        ("all-reduce.3", True),
        ("barrier-cores", True),
        ("fusion.2", False),
        ("copy-start", False),
    }
    assert [device.operations for device in call.devices] == [4, 4]
    assert [len(lane.operations) for lane in call.content.lanes] == [4, 4]


def test_a_tpus_exchanges_in_flight_are_beside_what_it_computes_and_its_copies_are_nothing() -> None:
    in_flight = [(GATHER, 90, 45, "all-gather-done"), (COPY, 130, 30, "copy-done")]
    call = read(chip(0, 100, Async_XLA_Ops=in_flight), chip(1, 100, Async_XLA_Ops=in_flight))
    assert (call.span_ns, times_of(call)[0], times_of(call)[1]) == (70, (11, 45, 11, 25), (11, 45, 11, 25))


def test_a_wait_within_a_loop_of_a_tpu_is_no_part_of_the_loop() -> None:
    loop = "%while.7 = (s32[], f32[8]{0:T(8)}) while((s32[], f32[8]{0:T(8)}) %tuple), condition=%c, body=%b"
    call = read(plane("/device:TPU:0", XLA_Ops=[(loop, 0, 100), (COPIED, 10, 30), (SUM, 50, 20)]))
    assert times_of(call)[0] == (50, 20, 0, 30)


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        (SUM, "all-reduce.3", Kind.COLLECTIVE),
        ("%psum.7 = (f32[8]{0:T(8)}, f32[8]{0}) all-reduce(%a, %b), channel_id=1", "psum.7", Kind.COLLECTIVE),
        ("%all_to_all.7 = bf16[8]{0:T(8)} all-to-all(%copy.4), dimensions={1}", "all_to_all.7", Kind.COLLECTIVE),
        ("%fusion.1 = f32[8]{0} fusion(%p), kind=kCustom, calls=%all-reduce-scatter.1", "fusion.1", Kind.COLLECTIVE),
        (
            "%async-collective-done = f32[8]{0} fusion(%p), kind=kCustom, calls=%fused_computation.16",
            "async-collective-done",
            Kind.COLLECTIVE,
        ),
        # A matrix product that moves an exchange on meanwhile.
        ("%fusion.22 = f32[8]{0} fusion(%p), kind=kOutput, calls=%async_collective_fusion.22", "fusion.22", None),
        (
            "%reduce-scatter-start = (f32[8]{0}) async-start(%p), calls=%wrapped",
            "reduce-scatter-start",
            Kind.COLLECTIVE,
        ),
        (
            "%collective-permute-done = f32[8]{0} collective-permute-done(%p)",
            "collective-permute-done",
            Kind.COLLECTIVE,
        ),
        ("%all-reduce.5 = f32[8]{0} copy(%p)", "all-reduce.5", None),
        ("%fusion.9 = f32[8]{0} fusion(%all-reduce.5), kind=kLoop, calls=%fused_computation", "fusion.9", None),
        ("%slice-done = f32[8]{0:T(8)S(1)} slice-done(%slice-start)", "slice-done", Kind.WAITING),
        ("%recv-done = (f32[8]{0}, token[]) recv-done(%recv), channel_id=1", "recv-done", Kind.COLLECTIVE),
        (
            "%recv-done = (f32[8]{0}, token[]) recv-done(%recv), is_host_transfer=true,"
            ' frontend_attributes={_xla_host_transfer_handler_name="xla_megascale_runtime"}',
            "recv-done",
            Kind.COLLECTIVE,
        ),
        (
            "%recv-done = (f32[8]{0}, token[]) recv-done(%recv), is_host_transfer=true,"
            ' frontend_attributes={_xla_host_transfer_handler_name="pjrt_rendezvous"}',
            "recv-done",
            Kind.WAITING,
        ),
        ("all-gather-start.2", "all-gather-start.2", Kind.COLLECTIVE),
        ("%odd", "odd", None),
        ("", "", None),
    ],
)
def test_an_instruction_is_an_exchange_by_its_opcode_or_by_what_it_wraps(
    text: str, name: str, kind: Kind | None
) -> None:
    assert by_instruction(text) == (name, kind or Kind.COMPUTING)


@pytest.mark.parametrize(
    ("kernel", "operation", "name", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "all-reduce-start.1", None, Kind.COLLECTIVE),
        ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>).kd", None, None, Kind.COLLECTIVE),
        ("MemcpyP2P", "collective-permute-start", "collective-permute-start", Kind.COLLECTIVE),
        ("input_transpose_fusion_1.kd", "input_transpose_fusion.1", "input_transpose_fusion.1", Kind.COMPUTING),
        ("__amd_rocclr_copyBuffer.kd", None, None, Kind.COMPUTING),
        ("MemcpyH2D", None, None, Kind.WAITING),
        ("CopyDeviceToHost", None, None, Kind.WAITING),
        ("MemcpyD2D", "copy.3", "copy.3", Kind.COMPUTING),
    ],
)
def test_a_kernel_is_what_its_operation_is_and_a_copy_from_the_host_is_nothing(
    kernel: str, operation: str | None, name: str | None, kind: Kind
) -> None:
    assert by_kernel(kernel, operation) == (name or kernel, kind)


def test_of_a_gpu_only_streams_count_by_whatever_name_and_lines_made_of_them_do_not() -> None:
    first: dict[str, Spans] = {
        "Stream_#16(Kernel)": [("gemm.kd", 10, 20, "dot.1")],
        "Stream_#2": [("scale.kd", 50, 10, "multiply.1")],
    }
    derived: dict[str, Spans] = {
        "TensorFlow_Ops": [("dot", 0, 99)],
        "XLA_Ops": [("dot.1", 0, 99)],
        "Steps": [("0", 0, 99)],
    }
    second: dict[str, Spans] = {
        "Stream_#63(MemcpyH2D)": [("MemcpyH2D", 5, 5)],
        "Stream_#25(Kernel)": [("gemm.kd", 20, 20, "dot.1")],
    }
    call = read(plane("/device:GPU:0", **first, **derived), plane("/device:GPU:1", **second))
    assert (call.span_ns, times_of(call)) == (55, [(30, 0, 0, 25), (20, 0, 0, 35)])
    assert [device.operations for device in call.devices] == [2, 1]


def test_the_hosts_events_of_an_accelerator_are_not_read_and_too_many_of_a_device_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trace_reading, "MAX_EVENTS", 10)
    host = plane("/host:CPU", main=[("PjitFunction(step)", at, 1) for at in range(20)])
    assert read(host, chip(0, 90)).span_ns == 70
    with pytest.raises(TraceTooLargeError):
        read(chip(0, 90), plane("/device:TPU:1", XLA_Ops=[(SUM, at, 1) for at in range(20)]))


@pytest.mark.parametrize("duration", [-5, 2**53])
def test_times_that_cannot_be_are_refused(duration: int) -> None:
    with pytest.raises(ValueError, match="ns"):
        read(plane("/device:TPU:0", XLA_Ops=[(SUM, 0, duration)]))


def test_as_many_waits_as_a_trace_may_have_take_a_second_not_minutes() -> None:
    count = 20_000
    stats = 'stats { metadata_id: 1 str_value: "op.1" } stats { metadata_id: 2 int64_value: 4 }'
    events = (
        f"events {{ metadata_id: 1 offset_ps: {at} duration_ps: 90000 {stats} }}"
        f" events {{ metadata_id: 2 offset_ps: {at + 10_000} duration_ps: 50000 }}"
        for at in range(0, count * 100_000, 100_000)
    )
    data = parsed(
        f"""planes {{ name: "/host:CPU" lines {{ name: "pool/1" {" ".join(events)} }}
        event_metadata {{ key: 1 value {{ id: 1 name: "op" }} }}
        event_metadata {{ key: 2 value {{ id: 2 name: "Rendezvous" }} }}
        stat_metadata {{ key: 1 value {{ id: 1 name: "hlo_op" }} }}
        stat_metadata {{ key: 2 value {{ id: 2 name: "device_ordinal" }} }} }}"""
    )
    began = time.process_time()
    call = TracedCall(step=0, call=0, **read_trace(data, DEVICES))
    assert time.process_time() - began < 5  # each wait held against each operation: 13 s
    assert call.devices[0].collective_ns == count * 90


def test_public_traces_are_known_by_their_content_and_their_figures_add_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for trace in json.loads(read_public.KNOWN.read_text())["traces"]:
        assert {"source", "commit", "licence", "what"} <= trace.keys()
        for computing, collective, both, idle, _ in trace["figures"]["devices"].values():
            assert computing + collective - both + idle == trace["figures"]["span_ns"], trace["source"]
    made = parsed_bytes(chip(0, 90))
    (tmp_path / "some.xplane.pb").write_bytes(made)
    assert read_public.main(tmp_path) == 2
    figures = {"span_ns": 70, "devices": {"0": [11, 30, 0, 29, 4]}, "collectives": ["all-reduce.3", "barrier-cores"]}
    known = {"source": "a/b made", "blob": read_public.blob_of(made), "devices": 2, "figures": figures}
    (tmp_path / "known.json").write_text(json.dumps({"traces": [known]}))
    monkeypatch.setattr(read_public, "KNOWN", tmp_path / "known.json")
    assert (read_public.main(tmp_path), "as counted: a/b made" in capsys.readouterr().out) == (0, True)
    figures["span_ns"] = 71
    (tmp_path / "known.json").write_text(json.dumps({"traces": [known]}))
    assert (read_public.main(tmp_path), "OTHERWISE: a/b made" in capsys.readouterr().out) == (1, True)
