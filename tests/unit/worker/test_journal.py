"""The journal keeps everything in order, says what a full disk cost in its place, and never gives up a result."""

import errno
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from drumline_worker.host.messages import encode
from drumline_worker.host.spool import SpoolReader, SpoolWriter
from drumline_worker.shim.intake import Inbox, OutputBuffer
from drumline_worker.shim.journal import Journal, SpoolFullError


@pytest.fixture
def spool(tmp_path: Path) -> SpoolWriter:
    return SpoolWriter(tmp_path)


def _events(tmp_path: Path, journal: Journal) -> list[dict[str, Any]]:
    with closing(SpoolReader(tmp_path)) as reader:
        records = reader.read(journal.last_seq, 10**6, 10**9)
    events = [json.loads(record.payload or b"") for record in records]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    return events


def _inbox(journal: Journal, output: OutputBuffer | None = None) -> Inbox:
    return Inbox(journal, output or OutputBuffer(), fence=1, on_tick=lambda _tick: None)


def test_over_the_cap_everything_is_taken_that_comes_all_the_same(tmp_path: Path, spool: SpoolWriter) -> None:
    journal = Journal(spool, max_bytes=200)
    inbox = _inbox(journal)
    for step in range(50):
        inbox.feed(encode({"kind": "progress", "step": step}))
    inbox.feed(encode({"kind": "result", "value": 42}))
    events = _events(tmp_path, journal)
    assert journal.full
    assert not journal.has_room
    assert [event["step"] for event in events if event["kind"] == "progress"] == list(range(50))
    assert events[-1]["kind"] == "result"


class _FullDisk(SpoolWriter):
    """A disk with room for so many bytes."""

    room = 10**9

    def append(self, record: bytes) -> int:
        if len(record) > self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= len(record)
        return super().append(record)


def _line(number: int) -> dict[str, Any]:
    return {"stream": "stdout", "text": f"line {number:04d}\n", "offset": 10 * number}


def test_what_a_full_disk_does_not_take_waits_in_memory_until_it_does(tmp_path: Path) -> None:
    disk = _FullDisk(tmp_path)
    journal = Journal(disk, memory_bytes=10_000)
    disk.room = 500
    written = 0
    while not journal.full:
        journal.record("log", **_line(written))
        written += 1
    assert journal.waits_for_disk
    assert journal.last_seq < journal.newest_seq == written
    disk.room = 10**9
    journal.catch_up()
    assert journal.has_room
    assert [event["text"] for event in _events(tmp_path, journal)] == [f"line {n:04d}\n" for n in range(written)]


def test_a_disk_that_stays_full_costs_output_and_says_so_in_its_place_but_no_result(tmp_path: Path) -> None:
    disk = _FullDisk(tmp_path)
    journal = Journal(disk)
    for number in range(3):
        journal.record("log", **_line(number))
    disk.room = 0
    for number in range(3, 10):
        journal.record("log", **_line(number))
    columns = {"names": ["a", "b"], "steps": [1, 1], "times": [1, 1], "values": [0.5, 0.5]}
    journal.write(journal.check({"kind": "metrics", **columns}))
    journal.record("result", value=42)
    journal.record("log", **_line(10))
    disk.room = 2_000  # what the reserve gives back
    journal.give_up()
    kept = _events(tmp_path, journal)
    assert [event["kind"] for event in kept] == ["log", "log", "log", "gap", "gap", "result", "gap"]
    lost = [(event["what"], event["count"]) for event in kept if event["kind"] == "gap"]
    assert lost == [("log", 7), ("metrics", 2), ("log", 1)]
    assert kept[3]["size_bytes"] == 70
    assert kept[3]["detail"] == "the disk was full"


def test_a_disk_without_room_for_the_result_is_an_error(tmp_path: Path) -> None:
    disk = _FullDisk(tmp_path)
    journal = Journal(disk)
    disk.room = 0
    journal.record("result", value=42)
    with pytest.raises(SpoolFullError):
        journal.give_up()


def test_the_first_result_stands(tmp_path: Path, spool: SpoolWriter) -> None:
    journal, output = Journal(spool), OutputBuffer()
    inbox = _inbox(journal, output)
    inbox.feed(encode({"kind": "result", "value": 1}) + encode({"kind": "result", "value": 2}))
    assert [event["value"] for event in _events(tmp_path, journal)] == [1]
    assert inbox.refused == 1


@pytest.mark.parametrize(
    "message",
    [
        {"kind": "log", "stream": "stdout", "text": "x", "offset": 0},
        {"kind": "ended"},
        {"kind": ["state"]},
        {},
        {"kind": "state", "phase": "running", "seq": 1},
        {"kind": "state", "phase": "running", "at": 0},
        {"kind": "state", "phase": "SUCCEEDED"},
        {"kind": "progress", "step": -1},
        {"kind": "progress", "step": 1, "extra": 1},
        {"kind": "failed", "reason": "COMPLETED"},
        {"kind": "failed", "reason": "LOST"},
        {"kind": "failed", "reason": "PROGRAM_ERROR", "message": "x\x00"},
        {"kind": "result", "value": "x" * 300_000},
        {"kind": "result", "value": "\ud800"},
        {"kind": "result", "value": {"\ud800": 1}},
        {"kind": "result", "value": json.loads("[" * 150 + "]" * 150)},
        {"kind": "metrics", "names": ["a"], "steps": [1], "times": ["0001-01-01T00:00:00+14:00"], "values": [1.0]},
        {"kind": "variable", "name": "x\ud800"},
        {"kind": "metrics", "names": ["a"], "steps": [1, 2], "times": [1], "values": [1.0]},
        {"kind": "reduction", "name": "r", "step": 0, "op": "max"},
    ],
    ids=lambda message: str(message)[:40],
)
def test_a_message_that_breaks_the_rules_is_refused_with_a_note(
    message: dict[str, object], tmp_path: Path, spool: SpoolWriter
) -> None:
    journal, output = Journal(spool), OutputBuffer()
    inbox = _inbox(journal, output)
    assert inbox.feed(encode(message))
    assert (inbox.refused, inbox.failure, inbox.has_result) == (1, None, False)
    assert journal.last_seq == 0
    assert output.pending


def test_broken_framing_ends_the_conversation(spool: SpoolWriter) -> None:
    assert not _inbox(Journal(spool)).feed(b"\x7f\xff\xff\xff")


def test_a_flood_of_refusals_makes_few_notes(spool: SpoolWriter) -> None:
    output = OutputBuffer()
    inbox = _inbox(Journal(spool), output)
    inbox.feed(encode({"kind": "nonsense"}) * 1_000)
    (notes,) = output.take_all()
    assert inbox.refused == 1_000
    assert str(notes).count("refused a message") == 20


def test_long_metrics_are_cut_and_what_can_not_be_cut_and_is_too_large_is_told_as_a_gap(
    tmp_path: Path, spool: SpoolWriter
) -> None:
    journal, count = Journal(spool), 16_000
    columns = {"names": ("a" * 200,) * count, "steps": range(count), "times": (1,) * count, "values": (1e5,) * count}
    journal.write(journal.check({"kind": "metrics", **columns}))
    journal.record("result", value="x" * 5_000_000)
    journal.record("result", value=42)
    *metrics, gap, result = _events(tmp_path, journal)
    assert [step for event in metrics for step in event["steps"]] == list(range(count))
    assert (gap["kind"], gap["what"], result["value"]) == ("gap", "spool", 42)
