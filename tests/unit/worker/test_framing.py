"""Messages survive any cutting of the stream; broken framing is noticed."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline_worker.host.messages import MAX_FRAME_BYTES, Decoder, FramingError, encode, encode_payload, parse


@given(st.lists(st.binary(max_size=200)), st.integers(1, 50))
def test_payloads_come_out_whole_however_the_stream_is_cut(payloads: list[bytes], cut: int) -> None:
    stream = b"".join(encode_payload(payload) for payload in payloads)
    decoder = Decoder()
    received = [p for start in range(0, len(stream), cut) for p in decoder.feed(stream[start : start + cut])]
    assert received == payloads


def test_a_long_message_travels_in_frames_of_64_kib() -> None:
    message = {"kind": "result", "value": "x" * 200_000}
    stream = encode(message)
    assert len(stream) > 3 * MAX_FRAME_BYTES
    (payload,) = Decoder().feed(stream)
    assert parse(payload) == message


def test_a_frame_that_claims_more_than_64_kib_is_refused_after_what_was_whole() -> None:
    payloads = Decoder().feed(encode_payload(b"fine") + struct.pack(">I", 65_537))
    assert next(payloads) == b"fine"
    with pytest.raises(FramingError, match="claims 65537 bytes"):
        next(payloads)


def test_a_message_without_end_is_refused() -> None:
    endless = struct.pack(">I", 1_000 | 1 << 31) + b"x" * 1_000
    with pytest.raises(FramingError, match="longer than 5000 bytes"):
        list(Decoder(5_000).feed(endless * 6))


@pytest.mark.parametrize("payload", [b"", b"nope", b"[1]", b"3", b"\xff", b"[" * 100_000, b"1" * 10_000])
def test_what_is_no_json_object_is_refused(payload: bytes) -> None:
    with pytest.raises(FramingError):
        parse(payload)
