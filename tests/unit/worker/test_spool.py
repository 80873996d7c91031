"""The spool: gapless, trimmed only by acknowledgement, readable as far as the disk is."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from drumline_worker.host.spool import RESERVE_BYTES, Record, SpoolReader, SpoolWriter, last_seq_on_disk

EVERYTHING = 10**9


def _filled(directory: Path, count: int, segment_bytes: int = 100) -> SpoolWriter:
    writer = SpoolWriter(directory, segment_bytes)
    for number in range(1, count + 1):
        assert writer.append(f"record {number}".encode()) == number
    return writer


def _records(first: int, last: int) -> list[Record]:
    return [Record(seq, f"record {seq}".encode()) for seq in range(first, last + 1)]


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[SpoolReader]:
    with closing(SpoolReader(tmp_path)) as reader:
        yield reader


def test_records_come_back_in_order_over_segments(tmp_path: Path, reader: SpoolReader) -> None:
    _filled(tmp_path, 50)
    assert len(list(tmp_path.iterdir())) > 5
    assert reader.read(50, EVERYTHING, EVERYTHING) == _records(1, 50)


def test_a_reader_follows_the_writer_and_stays_within_its_limits(tmp_path: Path, reader: SpoolReader) -> None:
    writer = _filled(tmp_path, 3)
    assert reader.read(3, 2, EVERYTHING) == _records(1, 2)
    assert reader.read(3, 2, EVERYTHING) == _records(3, 3)
    assert reader.read(3, 2, EVERYTHING) == []
    for number in range(4, 31):
        writer.append(f"record {number}".encode())
    assert reader.read(30, EVERYTHING, 20) == _records(4, 5)
    assert reader.read(30, EVERYTHING, 1) == _records(6, 6)
    assert reader.read(30, EVERYTHING, EVERYTHING) == _records(7, 30)


def test_trimming_deletes_only_segments_that_are_acknowledged_whole(tmp_path: Path) -> None:
    writer = _filled(tmp_path, 50)
    before = writer.size_bytes
    writer.trim(20)
    assert writer.size_bytes < before
    first = min(int(path.stem) for path in tmp_path.iterdir())
    assert 1 < first <= 21
    writer.trim(50)
    assert len(list(tmp_path.iterdir())) == 1
    assert writer.append(b"goes on") == 51


def test_a_torn_last_record_is_no_record(tmp_path: Path, reader: SpoolReader) -> None:
    _filled(tmp_path, 3, segment_bytes=10_000).close()
    (segment,) = tmp_path.iterdir()
    segment.write_bytes(segment.read_bytes()[:-1])
    assert last_seq_on_disk(tmp_path) == 2
    torn = segment.stat().st_size - 2 * (8 + len("record 1"))
    assert reader.read(3, EVERYTHING, EVERYTHING) == [*_records(1, 2), Record(3, None, torn)]


def test_a_garbled_record_costs_the_rest_of_its_segment_and_no_more(tmp_path: Path, reader: SpoolReader) -> None:
    _filled(tmp_path, 50).close()
    second = sorted(tmp_path.iterdir())[1]
    third = int(sorted(tmp_path.iterdir())[2].stem)
    raw = bytearray(second.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    second.write_bytes(raw)
    read = reader.read(50, EVERYTHING, EVERYTHING)
    assert [record.seq for record in read] == list(range(1, 51))
    lost = [record.seq for record in read if record.payload is None]
    assert lost
    assert int(second.stem) < lost[0]
    assert lost == list(range(lost[0], third))
    assert 0 < sum(record.lost_bytes for record in read) <= second.stat().st_size


def test_a_reader_that_skips_what_is_acknowledged_reads_the_rest(tmp_path: Path, reader: SpoolReader) -> None:
    _filled(tmp_path, 50).trim(25)
    reader.skip_to(reader.first_seq())
    first = min(int(path.stem) for path in tmp_path.iterdir())
    assert reader.size_bytes() == sum(path.stat().st_size for path in tmp_path.iterdir())
    assert reader.read(50, EVERYTHING, EVERYTHING) == _records(first, 50)
    assert reader.size_bytes() == 0


def test_a_reserve_is_room_that_comes_back(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path)
    writer.keep_reserve()
    (reserve,) = tmp_path.iterdir()
    assert reserve.stat().st_blocks * 512 >= RESERVE_BYTES
    writer.free_reserve()
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_starts_late_finds_what_is_left(tmp_path: Path, reader: SpoolReader) -> None:
    _filled(tmp_path, 50).trim(25)
    first = min(int(path.stem) for path in tmp_path.iterdir())
    read = reader.read(50, EVERYTHING, EVERYTHING)
    assert [record.seq for record in read if record.payload is None] == list(range(1, first))
    assert read[first - 1 :] == _records(first, 50)


def test_an_empty_spool_has_no_last_record(tmp_path: Path) -> None:
    assert last_seq_on_disk(tmp_path) == 0


LIMITED = """
import resource, sys
from pathlib import Path

from drumline_worker.host.spool import SpoolReader, SpoolWriter
from drumline_worker.shim.journal import Journal

resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
directory, lines = Path(sys.argv[1]), int(sys.argv[2])
spool = SpoolWriter(directory)
journal = Journal(spool)
for line in range(lines):
    journal.record("log", stream="stdout", text="x" * 999, offset=999 * line)
assert journal.waits_for_disk
reader = SpoolReader(directory)
came = []
while more := reader.read(journal.last_seq, 10**6, 10**9):
    came += more
    spool.trim(journal.last_seq)
    journal.catch_up()
assert [record.seq for record in came if record.payload is not None] == list(range(1, lines + 1)), len(came)
"""


def test_what_a_full_disk_did_not_take_arrives_as_what_it_holds_is_acknowledged(tmp_path: Path) -> None:
    """The kernel's own limit on a file stands for the disk: a write is cut short at it, and the next one fails."""
    child = [sys.executable, "-c", LIMITED, str(tmp_path), "2000"]
    told = subprocess.run(child, capture_output=True, text=True, timeout=60, check=False)
    assert told.returncode == 0, told.stderr
