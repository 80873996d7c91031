"""The server is away, for less and for more than T, and telemetry waits on disk meanwhile (F19, F29, F36)."""

import os
import random
import sys
import time
from pathlib import Path

from chaos.conftest import Measure, Scale
from chaos.harness import KILL_S, PATIENCE_S, SUSPECT_S, TAKEOVER_S, TERM_S, Site, in_force, open_site, seconds_until
from chaos.programs import PACING, write_program
from drumline import Run
from drumline.contracts.spec import Retries
from drumline_worker.host.spool import SpoolReader
from support.processes import living, wait_until

CHATTY = '''
    import os
    import time


    def main(run, *, lines: int = 4000, path: str = "", go: str):
        """Prints numbered lines of 1 KiB, with a metric for each, most of them once there is a file `go`."""
        for number in range(lines):
            while number == 100 and not os.path.exists(go):
                time.sleep(0.01)
            print(f"{number:06d}" + "x" * 1016, flush=True)
            run.log(step=number, x=float(number))
            if number % 100 == 99:
                time.sleep(0.1)
        if path:
            open(path, "w").close()
        return lines
'''


AWAY_S = 900.0


def output(run: Run) -> list[str]:
    """The lines that it printed."""
    segments = [segment for segment in run.logs() if segment.stream == "stdout"]
    return "".join(segment.text for segment in segments).splitlines()


def many(site: Site, tmp_path: Path, count: int) -> list[Run]:
    """Runs on two hosts, all of them running until there is a file `over`."""
    for name in ("alpha", "beta"):
        site.add_host(name, cpu_devices=count // 2)
    program = write_program(tmp_path, PACING)
    runs = [
        site.submit(
            program, str(number), parameters={"until": str(tmp_path / "over")}, retries=Retries(infrastructure=1)
        )
        for number in range(count)
    ]
    wait_until(lambda: all(run.refresh().state == "RUNNING" for run in runs), timeout_s=PATIENCE_S, what="all run")
    return runs


def test_f19_an_outage_of_the_server_shorter_than_t_kills_nothing(
    tmp_path: Path, database_url: str, scale: Scale
) -> None:
    with open_site(tmp_path, database_url, in_force("TAKEOVER_S", 120)) as site:
        runs = many(site, tmp_path, scale.live_runs)
        programs = [process for host in site.hosts for process in host.runners()]
        site.server.kill()
        time.sleep(scale.short_outage_s)  # the outage
        assert living(programs) == programs
        site.server.start()
        (tmp_path / "over").touch()
        for run in runs:
            assert site.finish(run).state == "SUCCEEDED"
            assert run.details.attempts == 1


def test_f19_an_outage_longer_than_t_ends_everything_in_time_and_then_all_is_tried_again(
    site: Site, tmp_path: Path, measured: Measure, scale: Scale
) -> None:
    runs = many(site, tmp_path, scale.live_runs)
    programs = [process for host in site.hosts for process in host.runners()]
    site.server.kill()
    cut = time.monotonic()
    dead_s = seconds_until(lambda: not living(programs), "all programs ended themselves", cut)
    assert dead_s > TERM_S - SUSPECT_S, "nothing dies early: the last heartbeat was no older than that"
    measured("self-fenced", dead_s, KILL_S + 1)
    time.sleep(max(0.0, scale.long_outage_s - dead_s))  # the rest of the outage
    (tmp_path / "over").touch()
    site.server.start()
    for run in runs:
        assert site.finish(run).state == "SUCCEEDED"
        assert [attempt.reason and attempt.reason.code for attempt in run.attempts] == ["COMPLETED", "LOST"]


def test_f29_telemetry_of_an_outage_in_which_the_agent_dies_comes_without_gap_or_repetition(
    tmp_path: Path, database_url: str, chance: random.Random, scale: Scale
) -> None:
    """The server is away; when it is back, its clock says that it was for `AWAY_S` longer."""
    outage_s, offset = chance.uniform(*scale.telemetry_outage_s), tmp_path / "offset"
    offset.write_text("0")
    settings = {**in_force("TAKEOVER_S", TAKEOVER_S + outage_s), "DRUMLINE_CHAOS_OFFSET": str(offset)}
    with open_site(tmp_path, database_url, settings, Path(__file__).with_name("shifted_server.py")) as site:
        line = site.proxy()
        host = site.add_host("alpha", through=line)
        go = tmp_path / "go"
        run = site.submit(write_program(tmp_path, CHATTY), parameters={"go": str(go)})
        wait_until(lambda: (run.refresh().details.progress.step or 0) > 0, timeout_s=PATIENCE_S, what="it is heard")
        if chance.random() < 0.5:
            line.hold()  # requests hang, else they are refused
        site.server.kill()
        go.touch()
        time.sleep(chance.uniform(0, 2))  # the agent dies at any time
        host.kill_agent()
        host.start()
        time.sleep(outage_s)
        offset.write_text(str(AWAY_S))
        site.server.start()
        line.mend()

        assert site.finish(run).state == "SUCCEEDED"
        assert (run.result, run.details.attempts) == (4000, 1)
        assert output(run) == [f"{number:06d}" + "x" * 1016 for number in range(4000)]
        points = run.to_arrow("x")
        assert points["step"].to_pylist() == points["value"].to_pylist() == list(range(4000))
        assert lost_events(run) == 0


def test_f36_what_a_garbled_spool_lost_is_told_and_the_rest_arrives(
    site: Site, tmp_path: Path, chance: random.Random
) -> None:
    line = site.proxy()
    host = site.add_host("alpha", through=line)
    printed, go = tmp_path / "printed", tmp_path / "go"
    run = site.submit(write_program(tmp_path, CHATTY), parameters={"path": str(printed), "go": str(go)})
    wait_until(lambda: (run.refresh().details.progress.step or 0) > 0, timeout_s=PATIENCE_S, what="it is heard")
    line.cut()
    go.touch()
    wait_until(printed.exists, timeout_s=PATIENCE_S, what="all is printed")
    host.kill_agent()
    segments = sorted(host.data_dir.glob("runs/*/spool/*.seg"))
    assert len(segments) >= 3
    place = chance.randrange(1, len(segments) - 1)
    garble(segments[place], chance)
    (heard,) = site.heard_of(run)
    lost = [seq for seq in unreadable(segments[place], segments[place + 1]) if seq > heard]
    host.start()
    line.mend()

    assert site.finish(run).state == "SUCCEEDED"
    assert (run.result, run.details.attempts) == (4000, 1)
    assert [event.body["value"] for event in run.events() if event.kind == "result"] == [4000]
    assert lost_events(run) == len(lost) > 0
    lines = output(run)
    whole = {f"{number:06d}" + "x" * 1016 for number in range(4000)}
    assert 1000 < len(whole.intersection(lines)) < 4000
    shown = [segment for segment in run.logs() if segment.stream != "system" or segment.gap]
    kept = sum(len(segment.text.encode()) for segment in shown if segment.gap is None)
    holes = [segment.gap.size_bytes or 0 for segment in shown if segment.gap is not None]
    assert len(holes) == 1
    assert kept + holes[0] == sum(len(line) + 1 for line in whole)
    told = "".join(segment.text for segment in shown)
    assert f"[drumline: {holes[0]} bytes of output lost here" in told
    assert lines[-1] in whole
    assert run.details.ended_at is not None


def lost_events(run: Run) -> int:
    """How many events its gaps say the spool has lost; they tell of nothing else but the output that was in them."""
    gaps = [event.body for event in run.events() if event.kind == "gap"]
    assert {gap["what"] for gap in gaps} <= {"spool", "log"}, gaps
    return sum(int(str(gap["count"])) for gap in gaps if gap["what"] == "spool")


def unreadable(segment: Path, following: Path) -> list[int]:
    """The seqs of the records of `segment` that nobody can read any more."""
    first_seq, last_seq = int(segment.stem), int(following.stem) - 1
    reader = SpoolReader(segment.parent)
    records = reader.read(last_seq, last_seq, sys.maxsize)
    reader.close()
    return [record.seq for record in records if record.payload is None and record.seq >= first_seq]


def garble(segment: Path, chance: random.Random) -> None:
    """Other bytes in its middle, or its end gone."""
    size = segment.stat().st_size
    with segment.open("r+b") as file:
        if chance.random() < 0.5:
            file.truncate(size // 2)
        else:
            file.seek(size // 2)
            file.write(os.urandom(64))
