import gzip
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordWriter

import drumline.distribute as dist
from drumline.distribute.input.tf_records import crc32c

RECORDS = [b"one", b"two\0\0", b""]


def masked_checksum(content: bytes) -> int:
    """As the format defines it: CRC-32C bit by bit, rotated by 15 bits, plus a constant."""
    checksum = 0xFFFFFFFF
    for byte in content:
        checksum ^= byte
        for _ in range(8):
            checksum = checksum >> 1 ^ (0x82F63B78 if checksum & 1 else 0)
    checksum ^= 0xFFFFFFFF
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def tf_record(record: bytes) -> bytes:
    length = struct.pack("<Q", len(record))
    return b"".join(
        [length, struct.pack("<I", masked_checksum(length)), record, struct.pack("<I", masked_checksum(record))]
    )


def write_tf_records(path: Path, records: list[bytes]) -> None:
    path.write_bytes(b"".join(map(tf_record, records)))


def write_array_records(path: Path, records: list[bytes]) -> None:
    writer = ArrayRecordWriter(str(path), "group_size:1")
    for record in records:
        writer.write(record)
    writer.close()


def test_text_lines_are_read_in_order_without_line_ends(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("eins\r\nzw\u00f6lf\n\n".encode())
    (tmp_path / "b").write_bytes(b"last")
    dataset = dist.Dataset.text_lines([tmp_path / "a", tmp_path / "b"])
    assert [line.item() for line in dataset] == ["eins", "zw\u00f6lf", "", "last"]
    assert dataset.files == (str(tmp_path / "a"), str(tmp_path / "b"))


def test_tf_records_keep_every_byte(tmp_path: Path) -> None:
    write_tf_records(tmp_path / "a", RECORDS)
    write_tf_records(tmp_path / "b", [b"three"])
    dataset = dist.Dataset.tf_records([tmp_path / "a", tmp_path / "b"]).batch(2)
    assert [batch.tolist() for batch in dataset] == [[b"one", b"two\0\0"], [b"", b"three"]]


#: A file with one empty record, byte for byte as TensorFlow writes it.
EMPTY_RECORD = bytes.fromhex("0000000000000000 29039807 d8ea82a2")


def test_a_file_of_tensorflow_is_read(tmp_path: Path) -> None:
    assert tf_record(b"") == EMPTY_RECORD
    (tmp_path / "a").write_bytes(EMPTY_RECORD + tf_record(b"123456789"))
    assert [record.item() for record in dist.Dataset.tf_records(tmp_path / "a")] == [b"", b"123456789"]


@pytest.mark.parametrize("content", [b"123456789", bytes(32)])
def test_checksums_are_those_of_the_standard(content: bytes) -> None:
    assert crc32c(content) == {b"123456789": 0xE3069283, bytes(32): 0x8A9136AA}[content]


@pytest.mark.parametrize("size", [4095, 4096, 4097, 4096 + 255, 4096 + 256, 50_001])
def test_long_records_are_verified_in_pieces_with_the_same_checksum(tmp_path: Path, size: int) -> None:
    record = bytes(number * 7 % 251 for number in range(size))
    write_tf_records(tmp_path / "a", [record, b"next"])
    assert [read.item() for read in dist.Dataset.tf_records(tmp_path / "a")] == [record, b"next"]


FIRST = tf_record(b"first")
SECOND = tf_record(b"second")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (FIRST + SECOND[:7], "at byte 21: the file ends within the 12 bytes before a record"),
        (FIRST + SECOND[:-1], "at byte 21: a record of 6 bytes begins, but the file ends 1 bytes too early"),
        (FIRST + SECOND[:12], "at byte 21: a record of 6 bytes begins, but the file ends 10 bytes too early"),
        (FIRST + b"\x07" + SECOND[1:], "at byte 21: the checksum of the record's length is wrong"),
        (FIRST + SECOND.replace(b"sec", b"sek"), "at byte 21: the checksum of the record of 6 bytes is wrong"),
        (FIRST + SECOND[:-1] + b"\0", "at byte 21: the checksum of the record of 6 bytes is wrong"),
        (struct.pack("<QI", 2**60, masked_checksum(struct.pack("<Q", 2**60))), f"at byte 0: a record of {2**60} bytes"),
        (b"text, no records\n", "at byte 0: the checksum of the record's length"),
    ],
)
def test_a_broken_record_is_named_by_file_and_offset(tmp_path: Path, content: bytes, text: str) -> None:
    (tmp_path / "broken").write_bytes(content)
    records = iter(dist.Dataset.tf_records(tmp_path / "broken"))
    if content.startswith(FIRST):
        assert next(records).item() == b"first"
    for _ in range(2):  # also when asked again: the rest is not skipped
        with pytest.raises(ValueError, match=f"broken' {text}"):
            next(records)


def test_workers_read_each_record_once_by_their_own_files(tmp_path: Path) -> None:
    for number in range(3):
        write_tf_records(tmp_path / str(number), [b"%d-%d" % (number, record) for record in range(3 + number)])
    dataset = dist.Dataset.tf_records([tmp_path / str(number) for number in range(3)]).batch(2)
    parts = [[row for batch in part for row in batch.tolist()] for part in dist.per_worker_batches(dataset, 2, 1)]
    assert {row[:1] for row in parts[1]} == {b"1"}
    assert sorted(row for part in parts for row in part) == sorted(row for batch in dataset for row in batch.tolist())


def test_a_place_in_record_files_is_restored(tmp_path: Path) -> None:
    write_tf_records(tmp_path / "a", RECORDS)
    write_tf_records(tmp_path / "b", [b"three"])
    dataset = dist.Dataset.tf_records([tmp_path / "a", tmp_path / "b"])
    for taken in range(5):
        interrupted, continued = iter(dataset.to_grain()), iter(dataset.to_grain())
        for _ in range(taken):
            next(interrupted)
        continued.set_state(interrupted.get_state())
        assert [record.item() for record in continued] == [*RECORDS, b"three"][taken:]


def test_array_records_keep_every_byte_and_know_their_number(tmp_path: Path) -> None:
    write_array_records(tmp_path / "a", RECORDS[:2])
    write_array_records(tmp_path / "b", [b"three"])
    dataset = dist.Dataset.array_records([tmp_path / "a", tmp_path / "b"])
    assert [record.item() for record in dataset] == [b"one", b"two\0\0", b"three"]
    assert dataset.cardinality() == 3


def test_files_are_divided_by_cycling_sizes_unless_told_otherwise(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("0\n1\n2\n3\n4\n5\n")
    strategy = dist.MirroredStrategy(["CPU:0", "CPU:1"])

    def rows(dataset: dist.Dataset) -> list[tuple[int, ...]]:
        return [step.rows for step in strategy.distribute_dataset(dataset)]

    dataset = dist.Dataset.text_lines(tmp_path / "a").batch(4)
    assert rows(dataset) == [(2, 2), (2, 0)]
    assert rows(dataset.with_auto_shard_policy("data")) == [(2, 2), (1, 1)]


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.txt"):
        dist.Dataset.text_lines(tmp_path / "nowhere.txt")
    with pytest.raises(ValueError, match="no files were given"):
        dist.Dataset.tf_records([])


def test_a_broken_record_file_is_an_error_and_no_silent_end(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(struct.pack("<QI", 100, 0) + b"short")
    with pytest.raises(ValueError, match="Not a valid TFRecord"):
        list(dist.Dataset.tf_records(tmp_path / "a"))


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drumline.distribute.input.files.find_spec", lambda _: None)
    with pytest.raises(ImportError, match="pip install pyarrow"):
        dist.Dataset.parquet_rows(tmp_path / "a.parquet")


def test_parquet_rows_are_dicts_of_scalars(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for name, start in (("a", 0), ("b", 2)):
        table = pyarrow.table({"x": [start, start + 1], "y": [0.5, 1.5]})
        parquet.write_table(table, tmp_path / name)
    dataset = dist.Dataset.parquet_rows([tmp_path / "a", tmp_path / "b"]).batch(3)
    assert [batch["x"].tolist() for batch in dataset] == [[0, 1, 2], [3]]


@pytest.mark.parametrize(("kind", "pack"), [("GZIP", gzip.compress), ("ZLIB", zlib.compress)])
def test_compressed_tf_records_are_read_and_continued(
    kind: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    records = [*RECORDS, bytes(range(256)) * 4000, b"last"]
    (tmp_path / "a").write_bytes(pack(b"".join(map(tf_record, records))))
    dataset = dist.Dataset.tf_records(tmp_path / "a", compression_type=kind)
    assert [record.item() for record in dataset] == records
    iterator = iter(dist.MirroredStrategy(["CPU:0"]).distribute_dataset(dataset.batch(1)))
    next(iterator)
    state = iterator.state()
    after = [np.asarray(batch).tolist() for batch in iterator]
    iterator.restore(state)
    assert [np.asarray(batch).tolist() for batch in iterator] == after == [[record] for record in records[1:]]


def test_gzip_files_one_after_the_other_are_one_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(gzip.compress(tf_record(b"one")) + gzip.compress(tf_record(b"two")))
    read = dist.Dataset.tf_records(tmp_path / "a", "GZIP")
    assert [record.item() for record in read] == [b"one", b"two"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no archive", "can't be unpacked"),
        (gzip.compress(FIRST[:5]), "content ends within the 12 bytes"),
        (gzip.compress(FIRST[:-6]), "the content ends before"),
        (gzip.compress(bytes([FIRST[0] ^ 1]) + FIRST[1:]), "the record's length is wrong"),
        (gzip.compress(FIRST[:12] + b"F" + FIRST[13:]), "checksum of the record of 5 bytes"),
    ],
    ids=["no archive", "header", "record", "length", "checksum"],  # an archive holds the time
)
def test_a_broken_compressed_file_is_named(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "broken").write_bytes(content)
    with pytest.raises(ValueError, match=f"broken' at byte 0: .*{said}"):
        next(iter(dist.Dataset.tf_records(tmp_path / "broken", "GZIP")))


def test_a_compression_that_is_none_is_refused(tmp_path: Path) -> None:
    write_tf_records(tmp_path / "a", RECORDS)
    with pytest.raises(ValueError, match="compression_type='BZIP' is unknown"):
        dist.Dataset.tf_records(tmp_path / "a", "BZIP")


def test_rows_of_array_files_are_read_in_order(tmp_path: Path) -> None:
    rows = np.arange(20).reshape(10, 2)
    np.save(tmp_path / "a.npy", rows[:6])
    np.save(tmp_path / "b.npy", rows[6:])
    dataset = dist.Dataset.array_files([tmp_path / "a.npy", tmp_path / "b.npy"])
    assert dataset.cardinality() == 10
    assert [batch.tolist() for batch in dataset.batch(4)] == [rows[:4].tolist(), rows[4:8].tolist(), rows[8:].tolist()]
    assert [batch.tolist() for batch in dist.Dataset.array_files(tmp_path / "a.npy").batch(6)] == [rows[:6].tolist()]


def test_rows_of_named_arrays_are_dicts(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(6).reshape(3, 2), y=np.arange(3))
    (batch,) = dist.Dataset.array_files(tmp_path / "a.npz").batch(3)
    assert {name: part.tolist() for name, part in batch.items()} == {"x": [[0, 1], [2, 3], [4, 5]], "y": [0, 1, 2]}


def test_workers_divide_array_files(tmp_path: Path) -> None:
    for number in range(4):
        np.save(tmp_path / f"{number}.npy", np.full(2, number))
    dataset = dist.Dataset.array_files([tmp_path / f"{number}.npy" for number in range(4)]).batch(2)
    parts = [[batch.tolist() for batch in part] for part in dist.per_worker_batches(dataset, 2, 1)]
    assert [{row for batch in part for row in batch} for part in parts] == [{0, 2}, {1, 3}]


@pytest.mark.parametrize("kind", ["text", "pickled", "scalar", "unequal"])
def test_files_without_arrays_of_rows_are_named(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"{kind}.npz"
    if kind == "text":
        path.write_text("no array")
    elif kind == "unequal":
        np.savez(path, x=np.ones(2), y=np.ones(3))
    else:
        with path.open("wb") as file:
            np.save(file, np.array([{}], object) if kind == "pickled" else np.float32(1))
    with pytest.raises(ValueError, match=f"{kind}.npz' holds no arrays of rows"):
        [*dist.Dataset.array_files(path)]
