"""Output of a program: decoded, in order, nothing lost."""

from drumline_worker.shim.intake import MAX_CHUNK_CHARS, Chunk, OutputBuffer


def test_pieces_of_one_stream_are_joined_and_offsets_count_bytes() -> None:
    output = OutputBuffer()
    output.add("stdout", b"a")
    output.add("stdout", "€".encode())
    output.add("stderr", b"!")
    output.add("stdout", b"b")
    assert output.take_all() == [
        Chunk("stdout", "a€", 0, 4),
        Chunk("stderr", "!", 4, 1),
        Chunk("stdout", "b", 5, 1),
    ]
    assert (output.size_bytes, output.waiting_bytes) == (6, 0)


def test_a_character_cut_in_half_waits_for_its_other_half() -> None:
    output = OutputBuffer()
    euro = "€".encode()
    output.add("stdout", euro[:1])
    assert not output.pending
    output.add("stdout", euro[1:])
    output.add("stdout", euro[:2])
    output.close()
    assert output.take_all() == [Chunk("stdout", "€\ufffd", 0, 6)]


def test_however_much_waits_the_oldest_is_kept() -> None:
    output = OutputBuffer()
    for letter in "abcde" * 100:
        output.add("stdout", letter.encode() * MAX_CHUNK_CHARS)
    kept = output.take_all()
    assert [piece.text[0] for piece in kept] == list("abcde" * 100)
    assert [piece.offset for piece in kept] == [number * MAX_CHUNK_CHARS for number in range(500)]
