"""However much a program logs, all of it is kept in order; beyond what the spool holds, the program waits."""

import json
import os
import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from drumline.contracts.programs import MAX_PROGRAMS
from drumline_worker.host.messages import Tick, ToldProgram, encode
from drumline_worker.host.spool import SpoolReader, SpoolWriter
from drumline_worker.shim.intake import Inbox, Intake, OutputBuffer, Pump
from drumline_worker.shim.journal import Journal
from drumline_worker.shim.runner_process import Runner, Stacks
from fuzz.world import PROGRAM

VALUES = 100_000
PER_MESSAGE = 2_000


class _Shim:
    """The part of a shim that takes what a program says, and the program's ends."""

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self.spool = SpoolWriter(directory, segment_bytes=max_bytes // 8)
        self.journal = Journal(self.spool, max_bytes)
        self._output = OutputBuffer()
        inbox = Inbox(self.journal, self._output, fence=1, on_tick=lambda _tick: None)
        self._pump = Pump(self.journal, self._output)
        ours, self.link = socket.socketpair()
        out_read, self.stdout = os.pipe()
        err_read, self.stderr = os.pipe()
        stacks_read, self._stacks = os.pipe()
        for fd in (ours.fileno(), out_read, err_read):
            os.set_blocking(fd, False)
        self._runner = Runner(0, ours, out_read, err_read, Stacks(stacks_read))
        self._selector = selectors.DefaultSelector()
        self.intake = Intake(self._selector, self._runner, inbox, self._output, self.journal)

    def turn(self) -> None:
        self.intake.pause_or_resume()
        for key, _ in self._selector.select(0.01) if self._selector.get_map() else ():
            key.data()
        self._pump.write_due()

    def finish(self) -> None:
        self.intake.drain()
        self._output.close()
        self._pump.flush()

    def close(self) -> None:
        self.link.close()
        self._runner.socket.close()
        for fd in (self._runner.stdout, self._runner.stderr, self._runner.stacks.pipe, self._stacks):
            os.close(fd)
        for fd in (self.stdout, self.stderr):
            if fd >= 0:
                os.close(fd)
        self.spool.close()


def _shim(directory: Path, max_bytes: int) -> Iterator[_Shim]:
    shim = _Shim(directory, max_bytes)
    yield shim
    shim.close()


@pytest.fixture
def roomy(tmp_path: Path) -> Iterator[_Shim]:
    yield from _shim(tmp_path, 1024**3)


@pytest.fixture
def tight(tmp_path: Path) -> Iterator[_Shim]:
    yield from _shim(tmp_path, 256 * 1024)


def _events(directory: Path, first: int, last: int) -> list[dict[str, Any]]:
    with closing(SpoolReader(directory)) as reader:
        reader.skip_to(first)
        return [json.loads(record.payload or b"") for record in reader.read(last, 10**9, 10**12)]


def _log(shim: _Shim) -> None:
    """So many values as fast as the socket takes them."""
    for first in range(0, VALUES, PER_MESSAGE):
        steps = list(range(first, first + PER_MESSAGE))
        columns = {
            "names": ["loss"] * PER_MESSAGE,
            "steps": steps,
            "times": steps,
            "values": [step / 3 for step in steps],
        }
        shim.link.sendall(encode({"kind": "metrics", **columns}))
    shim.link.shutdown(socket.SHUT_WR)


def test_every_value_of_a_burst_is_kept_bit_for_bit_in_events_that_fit(roomy: _Shim, tmp_path: Path) -> None:
    logging = threading.Thread(target=_log, args=(roomy,))
    logging.start()
    while logging.is_alive():
        roomy.turn()
    roomy.finish()
    events = _events(tmp_path, 1, roomy.journal.last_seq)
    assert {event["kind"] for event in events} == {"metrics"}
    assert [step for event in events for step in event["steps"]] == list(range(VALUES))
    assert [value for event in events for value in event["values"]] == [step / 3 for step in range(VALUES)]
    assert max(len(json.dumps(event, separators=(",", ":"))) for event in events) <= 65_536


def test_over_the_cap_the_program_waits_and_goes_on_as_the_server_takes_what_there_is(
    tight: _Shim, tmp_path: Path
) -> None:
    logging = threading.Thread(target=_log, args=(tight,))
    logging.start()
    steps: list[int] = []
    acked = pauses = 0
    while logging.is_alive() or not tight.journal.has_room:
        tight.turn()
        if tight.intake.is_paused:
            pauses += logging.is_alive()  # what stands in the pipe may be all that is left
            assert tight.spool.size_bytes < 2 * 256 * 1024 + 4 * 65_536
            steps += [step for event in _events(tmp_path, acked + 1, tight.journal.last_seq) for step in event["steps"]]
            acked = tight.journal.last_seq
            tight.spool.trim(acked)
    tight.finish()
    steps += [step for event in _events(tmp_path, acked + 1, tight.journal.last_seq) for step in event["steps"]]
    assert pauses > 5
    assert steps == list(range(VALUES))


def test_a_program_that_prints_waits_as_well_and_a_long_line_of_any_bytes_is_whole(
    tight: _Shim, tmp_path: Path
) -> None:
    line = "".join(chr(code) for code in (1, 34, 92, 0x20AC, 0x1F600, 65)) * 80_000
    printed = 0

    def write() -> None:
        nonlocal printed
        raw = line.encode()
        for start in range(0, len(raw), 50_000):
            printed += os.write(tight.stdout, raw[start : start + 50_000])
        os.close(tight.stdout)
        tight.stdout = -1

    writing = threading.Thread(target=write)
    writing.start()
    while not tight.intake.is_paused or printed == 0:
        tight.turn()
    assert writing.is_alive()
    events: list[dict[str, Any]] = []
    acked = 0
    while writing.is_alive() or tight.intake.is_paused:
        events += _events(tmp_path, acked + 1, tight.journal.last_seq)
        acked = tight.journal.last_seq
        tight.spool.trim(acked)
        tight.turn()
    tight.finish()
    events += _events(tmp_path, acked + 1, tight.journal.last_seq)
    assert "".join(event["text"] for event in events) == line
    assert all(len(json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode()) <= 65_536 for event in events)
    offset = 0
    for event in events:
        assert event["offset"] == offset
        offset += len(event["text"].encode())


@pytest.mark.parametrize("keeps", [True, False], ids=["rank 0", "another rank, or a server of before"])
def test_programs_are_told_in_their_order_and_beyond_the_eighth_without_their_list(keeps: bool, tmp_path: Path) -> None:
    spool = SpoolWriter(tmp_path)
    heard: list[Tick | ToldProgram] = []
    inbox = Inbox(Journal(spool, 2**20), OutputBuffer(), fence=1, on_tick=heard.append, keeps_programs=keeps)
    for number in range(MAX_PROGRAMS + 1):
        inbox.feed(encode({"kind": "program", "program": {**PROGRAM, "digest": str(number)}}))
    inbox.feed(encode({"kind": "program", "program": {**PROGRAM, "collectives": [{}]}}))
    spool.close()

    assert len(heard) == MAX_PROGRAMS + 1
    told = [event["program"] for event in _events(tmp_path, 1, spool.last_seq)] if keeps else []
    assert spool.last_seq == len(told) == (MAX_PROGRAMS + 1) * keeps
    assert [int(one["digest"]) for one in told] == list(range(len(told)))
    assert [len(one["collectives"]) for one in told] == ([1] * MAX_PROGRAMS + [0]) * keeps
    assert [one["more_collectives"] for one in told[-1:]] == [1] * keeps
    assert all(one["totals"][0]["size_bytes"] == PROGRAM["totals"][0]["size_bytes"] for one in told)
    assert inbox.refused == 1
