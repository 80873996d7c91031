"""A reduction's event holds as much of its arrays as the contract and the server take."""

import socket
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from drumline.contracts import arrays
from drumline.contracts.arrays import MAX_STRIPS, read_base64, unpack_arrays
from drumline.contracts.events import ReductionEvent
from drumline.distribute.observe import ReductionRecord, Sampling, SummaryOnDevice
from drumline_worker.host.messages import MAX_MESSAGE_BYTES, encode
from drumline_worker.runner import reports
from drumline_worker.runner.channel import Channel
from drumline_worker.runner.reports import ReductionReports


def made(replicas: int, size: int, *, with_strips: bool = True) -> ReductionEvent:
    rng = np.random.default_rng(0)
    inputs = tuple(rng.normal(size=size) for _ in range(replicas))
    return told(record(inputs, sum(inputs), sampling=Sampling(100, False)), takes_strips=with_strips)


def record(inputs: Any, result: Any, **more: Any) -> ReductionRecord:
    return ReductionRecord("w", 0, "sum", None, tuple(inputs), (1,) * len(inputs), None, result, "in_step", **more)


def told(one: ReductionRecord, by: ReductionReports | None = None, *, takes_strips: bool = True) -> ReductionEvent:
    """As the shim and the server read it."""
    with socket.socket() as link:
        reports = by or ReductionReports(Channel(link), takes_strips=takes_strips, takes_whole=takes_strips)
    fields: dict[str, Any] = reports.fields(one)
    return ReductionEvent.model_validate({**fields, "seq": 1, "at": "2026-01-01T00:00:00Z", "step": 0})


def test_a_large_array_has_a_strip_and_a_cosine_and_says_how_often_it_is_recorded() -> None:
    event = made(2, 2000)
    assert all(part.strip is not None and part.cosine is not None for part in event.inputs)
    assert event.result.strip is not None
    assert event.result.cosine is None
    assert event.sampling is not None
    assert event.sampling.every == 100


def test_arrays_that_are_listed_have_no_strip_until_they_are_too_many() -> None:
    assert [part.strip for part in made(4, 1000).inputs] == [None] * 4
    many = made(20, 1000)
    assert all(part.values is None and part.strip is not None for part in (*many.inputs, many.result))


def test_of_many_replicas_only_the_result_has_a_strip() -> None:
    event = made(MAX_STRIPS + 1, 2000)
    assert [part.strip for part in event.inputs] == [None] * (MAX_STRIPS + 1)
    assert event.result.strip is not None


def test_a_server_of_before_is_told_what_it_knows() -> None:
    event = made(2, 2000, with_strips=False)
    assert event.sampling is None
    assert {(part.strip, part.cosine) for part in (*event.inputs, event.result)} == {(None, None)}
    assert (event.whole, event.not_whole) == (None, None)


_ODD_BITS: dict[str, Any] = {
    "float32": np.array([0x7FC00001, 0xFF800123, 0x7F800000, 0xFF800000, 0x80000000, 1, 0x007FFFFF], np.uint32),
    "float64": np.array([0x7FF8000000000F0F, 0xFFF0000000000000, 1 << 63, 1], np.uint64),
    "float16": np.array([0x7E01, 0xFC00, 0x8000, 1], np.uint16),
    "bfloat16": np.array([0x7FC1, 0xFF80, 0x8000, 1], np.uint16),
    "int64": np.array([-(2**63), 2**53 + 1, -1], np.int64),
    "uint8": np.array([0, 255], np.uint8),
    "complex64": np.array([0x7FC00001, 0x80000000], np.uint32),
}


@pytest.mark.parametrize("dtype", sorted(_ODD_BITS))
def test_elements_are_kept_bit_for_bit_in_a_large_array(dtype: str) -> None:
    bits = np.resize(_ODD_BITS[dtype], 2400)
    kind = jnp.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    part = bits.view(kind)
    event = told(record([part, part[::-1]], part))
    assert event.whole is not None
    kept = unpack_arrays(read_base64(event.whole), (*event.inputs, event.result))
    assert kept == part.tobytes() + part[::-1].tobytes() + part.tobytes()


def test_a_listed_array_is_kept_whole_only_where_a_list_of_floats_is_not_every_bit() -> None:
    ones = np.ones(3, np.float32)
    assert told(record([ones, ones], 2 * ones)).whole is None
    odd = np.array([0x7FC00001], np.uint32).view(np.float32)
    event = told(record([odd, odd], odd))
    assert event.whole is not None
    assert unpack_arrays(read_base64(event.whole), (*event.inputs, event.result)) == odd.tobytes() * 3
    assert told(record([odd, odd], odd, keeps_whole=False)).not_whole is None  # its values are there


def test_what_is_not_kept_whole_says_why() -> None:
    def why(size: int, replicas: int, kind: Any = np.float32, **more: Any) -> Any:
        event = told(record([np.zeros(size, kind)] * replicas, np.zeros(size, kind), **more))
        assert event.whole is None
        return event.not_whole

    assert why(16_385, 2) == "array_bytes"
    assert why(16_384, 9) == "all_bytes"
    assert why(2_000, 2, np.longdouble) == "type"
    assert why(2_000, 2, keeps_whole=False) == "between"
    on_device = SummaryOnDevice((2_000,), "float32", np.zeros(6 + 3 * 64, np.uint32))
    assert told(record([on_device] * 2, on_device)).not_whole == "several_steps"


def test_after_so_many_bytes_no_more_are_kept_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as link:
        monkeypatch.setattr(reports, "MAX_WHOLE_RUN_BYTES", 30_000)
        sender = ReductionReports(Channel(link), takes_strips=True, takes_whole=True)
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=2_000).astype(np.float32) for _ in range(2)]
    events = [told(record(parts, sum(parts)), sender) for _ in range(2)]
    assert [event.not_whole for event in events] == [None, "run_bytes"]


def test_the_largest_that_is_kept_fits_in_a_message_and_in_a_batch() -> None:
    rng = np.random.default_rng(0)
    parts = [rng.integers(0, 2**32, size=16_384, dtype=np.uint32).view(np.float32) for _ in range(8)]
    event = told(record(parts, parts[0]))
    assert event.whole is not None
    assert len(encode(event.model_dump(mode="json"))) < min(MAX_MESSAGE_BYTES, 960 * 1024)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"whole": "AAAA"}, "not compressed by zlib"),
        ({"whole": "?"}, "no base64"),
        ({"whole": "more"}, "holds other than the 24000 bytes"),
        ({"result": {"shape": [20_000], "dtype": "float32"}}, "are not kept whole; at most 65536 each"),
        ({"result": {"shape": [3], "dtype": "float8"}}, "elements of type float8 are not kept"),
    ],
)
def test_what_is_no_element_of_its_arrays_is_refused(change: dict[str, Any], says: str) -> None:
    part = np.ones(2_000, np.float32)
    fields = told(record([part, part], part)).model_dump(mode="json")
    if change.get("whole") == "more":
        change = {"whole": told(record([part] * 3, part)).whole}
    with pytest.raises(ValueError, match=says):
        ReductionEvent.model_validate({**fields, **change})
    assert arrays.whole_bytes(told(record([part, part], part)).inputs) == 16_000
