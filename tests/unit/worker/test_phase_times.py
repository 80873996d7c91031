"""What a program's time goes into, as its shim reads it and writes it down."""

import itertools
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from drumline.contracts.base import new_id
from drumline.contracts.events import TimeEvent
from drumline.contracts.spent import GROUPS, SENTENCES, Spent
from drumline_worker.host.spool import EVENT, SpoolReader, SpoolWriter
from drumline_worker.host.tally import PhaseTimes
from drumline_worker.runner.throughput import Told
from drumline_worker.shim.journal import LOOK_S, Journal, Timesheet
from support.start_orders import start_order

BEGAN = 100.0
_KILLED = """
import os, signal

from drumline.contracts.spent import Spent
from drumline_worker.host.tally import PhaseTimes

times = PhaseTimes()
if (child := os.fork()) == 0:
    times.enter(Spent.COMPILE)
    times.note_step(7)
    os.kill(os.getpid(), signal.SIGKILL)
os.waitpid(child, 0)
sample = times.read()
print(sample.current, sample.step)
"""
"""In a process of its own: JAX, which other tests leave here, warns of any fork."""


class Sheet:
    """A timesheet over a real spool, in time that the test moves."""

    def __init__(self, path: Path, *, takes_times: bool = True, **order: float) -> None:
        self.now = BEGAN
        self.path = path
        path.mkdir(exist_ok=True)
        self.times = PhaseTimes(lambda: self.now)
        plain = start_order(new_id("mem"))
        claimed = plain.claimed.model_copy(update={"takes_times": takes_times})
        order_ = plain.model_copy(update={"claimed": claimed, **order})
        self.spool = SpoolWriter(path)
        self.sheet = Timesheet(Journal(self.spool), order_, self.times)

    def last(self, seconds: float, phase: Spent | None = None, *, waits: bool = False) -> None:
        """So much time passes, looked at as often as the shim does."""
        if phase is not None:
            self.times.enter(phase)
        for _ in range(round(seconds / LOOK_S)):
            self.sheet.sleep(self.now, LOOK_S)
            self.now += LOOK_S
            self.sheet.wake(self.now)
            self.sheet.look(waits=waits)

    def told(self) -> list[TimeEvent]:
        """All of it, each second once."""
        self.sheet.close()
        self.spool.close()
        with closing(SpoolReader(self.path)) as reader:
            records = reader.read(self.spool.last_seq, 10**6, 10**9)
        events = [EVENT.validate_json(record.payload or b"") for record in records]
        stretches = [event for event in events if isinstance(event, TimeEvent)]
        for event, following in itertools.pairwise(stretches):
            assert event.end_us == following.begin_us
        assert all(sum(event.spent_us.values()) == event.end_us - event.begin_us for event in stretches)
        return stretches

    def seconds(self) -> dict[str, float]:
        total: dict[str, float] = {}
        for event in self.told():
            for name, us in event.spent_us.items():
                total[name] = total.get(name, 0.0) + us / 1e6
        return total


def test_every_name_has_a_group_and_a_sentence() -> None:
    assert GROUPS.keys() == SENTENCES.keys() == set(Spent)


def test_a_start_is_told_from_the_claim_on(tmp_path: Path) -> None:
    sheet = Sheet(tmp_path / "spool", claimed_at=90.0, complete_at=93.0, unpacked_at=98.0)
    sheet.last(2.0, Spent.OWN_CODE)
    assert sheet.seconds() == pytest.approx({"rendezvous": 3.0, "bundle": 5.0, "launch": 2.0, "own_code": 2.0})


def test_phases_have_their_lengths_however_short_they_are(tmp_path: Path) -> None:
    sheet = Sheet(tmp_path / "spool")
    for step in range(500):
        for phase, seconds in ((Spent.INPUT, 0.01), (Spent.STEPS, 0.03)):
            sheet.times.enter(phase)
            sheet.now += seconds
        sheet.times.note_step(step + 1)
        sheet.sheet.look(waits=False)
    stretches = sheet.told()
    assert sum(event.spent_us.get(Spent.INPUT, 0) for event in stretches) == pytest.approx(5e6, abs=500)
    assert (stretches[-1].step, 18 <= len(stretches) <= 22) == (500, True)


def test_a_phase_that_lasts_is_a_stretch_of_its_own_from_its_first_moment(tmp_path: Path) -> None:
    sheet = Sheet(tmp_path / "spool")
    sheet.last(3.0, Spent.STEPS)
    sheet.now += 0.1  # between two looks
    sheet.last(0.6, Spent.CHECKPOINT)
    sheet.last(3.0, Spent.STEPS)
    (saved,) = [event for event in sheet.told() if Spent.CHECKPOINT in event.spent_us]
    assert saved.begin_us == pytest.approx(3_100_000, abs=1)
    assert dict(saved.spent_us) == pytest.approx({Spent.CHECKPOINT: 600_000}, abs=1)


def test_a_host_that_stood_still_is_told_in_place_of_what_it_did(tmp_path: Path) -> None:
    sheet = Sheet(tmp_path / "spool")
    sheet.last(1.0, Spent.STEPS)
    sheet.sheet.sleep(sheet.now, LOOK_S)
    sheet.now += 10.0
    sheet.sheet.wake(sheet.now)
    sheet.sheet.look(waits=False)
    sheet.last(1.0)
    assert sheet.seconds() == pytest.approx({"steps": 2.1, "frozen": 9.9})


def test_whoever_waits_for_its_telemetry_does_nothing_else(tmp_path: Path) -> None:
    sheet = Sheet(tmp_path / "spool")
    sheet.last(1.0, Spent.STEPS)
    sheet.last(2.0, waits=True)
    sheet.last(1.0)
    assert sheet.seconds() == pytest.approx({"steps": 2.0, "waiting_for_telemetry": 2.0})


def test_a_day_takes_some_two_thousand_stretches(tmp_path: Path) -> None:
    sheet = Sheet(tmp_path / "spool")
    sheet.times.enter(Spent.STEPS)
    for _ in range(86_400):
        sheet.now += 1.0
        sheet.sheet.look(waits=False)
    assert 1_500 < len(sheet.told()) < 3_000


def test_a_server_of_the_release_before_is_told_nothing(tmp_path: Path) -> None:
    sheet = Sheet(tmp_path / "spool", takes_times=False)
    sheet.last(5.0, Spent.STEPS)
    assert sheet.told() == []


def test_a_killed_program_leaves_what_it_did_until_then() -> None:
    told = subprocess.run([sys.executable, "-c", _KILLED], check=True, timeout=60, capture_output=True, text=True)
    assert told.stdout == f"{Spent.COMPILE} 7\n"


def test_other_threads_of_a_program_change_nothing() -> None:
    times = PhaseTimes()
    thread = threading.Thread(target=lambda: times.enter(Spent.INPUT))
    thread.start()
    thread.join()
    assert times.current is Spent.LAUNCH


@pytest.mark.parametrize(
    ("events", "seconds"),
    [
        ([(10.0, 2.0), (12.0, 2.0)], [2.0, 2.0]),  # one after the other
        ([(10.0, 1.0), (11.0, 4.0)], [1.0, 3.0]),  # the second has the first within it
        ([(10.0, 1.0), (11.0, 0.5), (12.0, 5.0)], [1.0, 0.5, 3.5]),
    ],
)
def test_compiling_within_compiling_counts_once(events: list[tuple[float, float]], seconds: list[float]) -> None:
    told = Told()
    assert [told.new_s(ended, lasted) for ended, lasted in events] == pytest.approx(seconds)
