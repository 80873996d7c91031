"""The journal keeps within its cap, says what it dropped, and never drops a result."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from drumline_worker.framing import encode
from drumline_worker.shim.inbox import Inbox
from drumline_worker.shim.journal import Journal
from drumline_worker.shim.output import OutputBuffer
from drumline_worker.spool import SpoolReader, SpoolWriter


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


def test_over_the_cap_only_results_are_taken_and_the_gap_is_told(tmp_path: Path, spool: SpoolWriter) -> None:
    journal = Journal(spool, max_bytes=200)
    inbox = _inbox(journal)
    for step in range(50):
        inbox.feed(encode({"kind": "progress", "step": step}))
    inbox.feed(encode({"kind": "result", "value": 42}))
    events = _events(tmp_path, journal)
    kept = [event for event in events if event["kind"] == "progress"]
    (gap,) = [event for event in events if event["kind"] == "gap"]
    assert len(kept) + gap["count"] == 50
    assert events[-1]["kind"] == "result"


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


def test_an_event_too_large_for_the_spool_is_told_as_a_gap_and_nothing_after_it_is_lost(
    tmp_path: Path, spool: SpoolWriter
) -> None:
    journal, count = Journal(spool), 150_000
    columns = {"names": ("a",) * count, "steps": (1,) * count, "times": (1,) * count, "values": (1e5,) * count}
    journal.write(journal.check({"kind": "metrics", **columns}))
    journal.record("result", value=42)
    gap, result = _events(tmp_path, journal)
    assert (gap["kind"], gap["what"], result["value"]) == ("gap", "metrics", 42)
