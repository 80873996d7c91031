"""Output of a program: bounded, decoded, nothing lost without a word."""

from drumline_worker.shim.budget import Bucket
from drumline_worker.shim.output import MAX_CHUNK_CHARS, Chunk, Dropped, OutputBuffer


def _unlimited() -> Bucket:
    return Bucket(1e12, 1e12)


def test_pieces_of_one_stream_are_joined_and_offsets_count_bytes() -> None:
    output = OutputBuffer(bucket=_unlimited())
    output.add("stdout", b"a")
    output.add("stdout", "€".encode())
    output.add("stderr", b"!")
    output.add("stdout", b"b")
    assert output.take_all() == [
        Chunk("stdout", "a€", 0, 4),
        Chunk("stderr", "!", 4, 1),
        Chunk("stdout", "b", 5, 1),
    ]


def test_a_character_cut_in_half_waits_for_its_other_half() -> None:
    output = OutputBuffer(bucket=_unlimited())
    euro = "€".encode()
    output.add("stdout", euro[:1])
    assert not output.pending
    output.add("stdout", euro[1:])
    output.add("stdout", euro[:2])
    output.close()
    assert output.take_all() == [Chunk("stdout", "€\ufffd", 0, 6)]


def test_over_the_backlog_the_oldest_is_dropped_and_counted() -> None:
    output = OutputBuffer(backlog_bytes=3 * MAX_CHUNK_CHARS, bucket=_unlimited())
    for letter in "abcde":
        output.add("stdout", letter.encode() * MAX_CHUNK_CHARS)
    dropped, *kept = output.take_all()
    assert dropped == Dropped(chunks=2, size=2 * MAX_CHUNK_CHARS)
    assert [piece.text[0] for piece in kept if isinstance(piece, Chunk)] == ["c", "d", "e"]
    assert next(piece.offset for piece in kept if isinstance(piece, Chunk)) == 2 * MAX_CHUNK_CHARS


def test_the_budget_holds_output_back_until_time_has_passed() -> None:
    output = OutputBuffer(bucket=Bucket(rate=10, burst=10))
    output.add("stdout", b"x" * 10)
    output.add("stderr", b"y" * 10)
    assert output.take(0.0) == Chunk("stdout", "x" * 10, 0, 10)
    assert output.take(0.5) is None
    assert output.take(1.0) == Chunk("stderr", "y" * 10, 10, 10)
    assert not output.pending
