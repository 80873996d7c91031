import struct
from pathlib import Path

import pytest
from array_record.python.array_record_module import ArrayRecordWriter

import drumline.distribute as dist

RECORDS = [b"one", b"two\0\0", b""]


def write_tf_records(path: Path, records: list[bytes]) -> None:
    frames = (struct.pack("<QI", len(record), 0) + record + struct.pack("<I", 0) for record in records)
    path.write_bytes(b"".join(frames))


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
