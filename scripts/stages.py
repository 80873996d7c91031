"""Runs the stages of `make test`, those that wait beside those that compute, and counts what they prove.

Every stage has a log in build/test/ and a line in the table: wall time, processor time of all its processes, and counts
(tests that passed, seeds, mutants, faults, examples) from the reports that pytest writes. `tests/proof.json` holds what
each stage proves at least: a lower count fails the run, unless a line of `replaced` there says by how much it is lower
and what took its place. JSON in build/test/stages.json; `--write` keeps a copy that is committed, there with lines of
stages that did not run this time.
"""

import argparse
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / "build" / "test"
PROOF = ROOT / "tests" / "proof.json"
LANES: Mapping[str, Sequence[str]] = {
    "computes": ("check", "integration", "unit", "simulation"),
    "waits": ("chaos", "e2e", "pythons", "conformance", "frontend-test"),
}
"""One stage of each lane runs at a time; a lane that is done takes the last stage that waits in the longest other. With
a third, on two processors, the browser tests took 25 % longer and the integration tests 53 %."""
NICENESS: Mapping[str, int] = {"computes": 5, "serves": 5}
"""How far stages of a lane give way: those that wait hold real processes to limits of seconds, and get what they need;
those that serve have limits too, which are wider. Where Linux shares processors out among sessions (autogroup), only
within the stage: further is not asked for, as a stage has one session and its tests' servers have one each."""
LONG_LANES: Mapping[str, Sequence[str]] = {
    "computes": ("unit", "sim", "test-pythons", "fuzz"),
    "waits": ("chaos", "e2e"),
    "serves": ("integration", "machine"),
}
"""Of `make test-long`."""
LONG_VARIABLES: Mapping[str, Sequence[str]] = {
    "unit": ("LONG=1",),
    "sim": ("SEEDS=3000",),
    "chaos": ("FULL=1",),
    "e2e": ("LONG=1",),
    "integration": ("DATABASES=both", "LONG=1"),
    "machine": ("EXAMPLES=200",),
}
"""What makes these stages longer than those of `make test`; the others have no short form."""
TAIL_LINES = 60
"""Of the log of a stage that failed."""
_LOOK_S = 1.0
"""How often a wait for a lane looks whether a signal has come."""
_END_S = 60.0
"""For stages to end what they started, once this program is to stop."""


@dataclass(slots=True)
class Result:
    """What one stage took and proved."""

    stage: str
    passed: bool
    wall_s: float
    processor_s: float
    """Of the stage's processes that were waited for."""
    counts: dict[str, int] = field(default_factory=dict)
    commit: str = ""
    """Of the tree that was tested."""


def main() -> int:
    """Exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="stages to run, such as 'unit chaos' [default: all]")
    parser.add_argument("--long", action="store_true", help="the stages of `make test-long`")
    parser.add_argument("--write", type=Path, help="where the table goes too, as JSON")
    arguments = parser.parse_args()
    only, lanes = arguments.only.split(), LONG_LANES if arguments.long else LANES
    unknown = set(only) - {stage for lane in lanes.values() for stage in lane}
    if unknown:
        print(f"Error: STAGES names {', '.join(sorted(unknown))}: no such stage", file=sys.stderr)
        return 2
    REPORTS.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    chosen = {name: [s for s in stages if not only or s in only] for name, stages in lanes.items()}
    end_on_signals()
    results = Lanes(chosen, LONG_VARIABLES if arguments.long else {}, arguments.write).run()
    wall_s = time.monotonic() - began
    problems = shortfalls(results, json.loads(PROOF.read_text()))
    print(table(results, wall_s))
    (REPORTS / "stages.json").write_text(told(results, wall_s))
    for problem in problems:
        print(f"Error: {problem}", file=sys.stderr)
    return 1 if problems or not all(result.passed for result in results) else 0


def end_on_signals() -> None:
    """Also where the shell that started this program in the background ignores them for it, and so for all stages."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


class Lanes:
    """Stages one after the other in each lane, the lanes side by side."""

    def __init__(
        self, lanes: Mapping[str, Sequence[str]], variables: Mapping[str, Sequence[str]], copy: Path | None = None
    ) -> None:
        """`variables` are those of make, by stage; `copy` gets the table whenever a stage ends."""
        self._waiting = {lane: deque(stages) for lane, stages in lanes.items()}
        self._niceness = {stage: NICENESS.get(lane, 0) for lane, stages in lanes.items() for stage in stages}
        self._variables = variables
        self._copy = copy
        self._began = time.monotonic()
        self._results: list[Result] = []
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._is_stopping = False
        self._lock = threading.Lock()

    def run(self) -> list[Result]:
        """The results of all stages, in the order in which they ended."""
        threads = [threading.Thread(target=self._run_lane, args=(lane,)) for lane in self._waiting]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                # A signal that comes as the wait begins is noticed when it ends, so no wait is for ever.
                while thread.is_alive():
                    thread.join(_LOOK_S)
        except KeyboardInterrupt:
            self._stop([thread for thread in threads if thread.ident is not None])
            raise
        return self._results

    def _next_stage(self, lane: str) -> str | None:
        with self._lock:
            if self._waiting[lane]:
                return self._waiting[lane].popleft()
            longest = max(self._waiting.values(), key=len)
            return longest.pop() if longest else None

    def _run_lane(self, lane: str) -> None:
        while (stage := self._next_stage(lane)) is not None:
            result = self.run_stage(stage, niceness=self._niceness[stage])
            if result is None:
                return
            with self._lock:
                self._results.append(result)
                self._say(_line(result))
                if self._copy is not None:
                    lines = [*kept(self._copy, self._results), *self._results]
                    self._copy.write_text(told(lines, time.monotonic() - self._began))
                if not result.passed:
                    print(_tail(_log(stage)), flush=True)

    def run_stage(self, stage: str, *, niceness: int = 0) -> Result | None:
        """Runs `make STAGE`, whose pytest leaves its reports in the stage's folder; None once all is to stop."""
        reports = REPORTS / stage
        reports.mkdir(exist_ok=True)
        for report in reports.glob("*.xml"):
            report.unlink()
        began = time.monotonic()
        process = self._start(stage, reports, niceness)
        if process is None:
            return None
        # Usage of the stage's own tree: getrusage would add up all stages that ended meanwhile.
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        del self._running[stage]
        wall_s, processor_s = time.monotonic() - began, usage.ru_utime + usage.ru_stime
        passed = process.returncode == 0
        return Result(stage, passed, round(wall_s, 1), round(processor_s, 1), dict(count(reports)), _commit())

    def _start(self, stage: str, reports: Path, niceness: int) -> subprocess.Popen[bytes] | None:
        command = ["make", "--no-print-directory", stage, *self._variables.get(stage, ())]
        with self._lock:
            if self._is_stopping:
                return None
            self._say(f"{stage:14} begins")
            with _log(stage).open("wb") as log:
                # A session of its own: a signal to its group reaches everything that the stage started.
                process = self._running[stage] = subprocess.Popen(
                    ["nice", "-n", str(niceness), *command],
                    cwd=ROOT, env={**os.environ, "DRUMLINE_TEST_REPORTS": str(reports)}, stdin=subprocess.DEVNULL,
                    stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
        return process

    def _stop(self, threads: Sequence[threading.Thread]) -> None:
        """Tests end the servers that they started when they are interrupted, and leave them behind when killed."""
        with self._lock:
            self._is_stopping = True
            for process in list(self._running.values()):
                os.killpg(process.pid, signal.SIGINT)
        ends = time.monotonic() + _END_S
        for thread in threads:
            thread.join(max(0.0, ends - time.monotonic()))
        for process in list(self._running.values()):
            os.killpg(process.pid, signal.SIGKILL)

    def _say(self, line: str) -> None:
        print(f"{time.monotonic() - self._began:5.0f} s  {line}", flush=True)


def count(reports: Path) -> Counter[str]:
    """Tests that passed, and what they recorded that they tried: seeds, mutants, faults, examples."""
    counts: Counter[str] = Counter()
    for report in sorted(reports.glob("*.xml")):
        for case in ElementTree.parse(report).iter("testcase"):
            if any(case.find(outcome) is not None for outcome in ("failure", "error", "skipped")):
                continue
            counts["tests"] += 1
            for entry in case.iter("property"):
                if entry.get("name") in ("seeds", "mutants", "faults", "examples"):
                    counts[str(entry.get("name"))] += int(str(entry.get("value")))
    return counts


def shortfalls(results: Sequence[Result], proof: Mapping[str, object]) -> list[str]:
    """A sentence for every count that is lower than tests/proof.json allows."""
    least: Mapping[str, Mapping[str, int]] = proof["least"]  # type: ignore[assignment]  # JSON of our own
    replaced: Sequence[Mapping[str, object]] = proof["replaced"]  # type: ignore[assignment]  # JSON of our own
    problems = []
    for result in results:
        for what, proven in least.get(result.stage, {}).items():
            gone = sum(
                int(str(line["less"])) for line in replaced if (line["stage"], line["count"]) == (result.stage, what)
            )
            seen = result.counts.get(what, 0)
            if seen < proven - gone and result.passed:
                problems.append(
                    f"{result.stage} proves less: {seen} {what}, {proven - gone} before. Say in {PROOF.name} under "
                    f'"replaced" what took the place of {proven - gone - seen}.'
                )
    return problems


def table(results: Sequence[Result], wall_s: float) -> str:
    """All stages and their sum, for people."""
    rows = [_line(result) for result in results]
    processor_s = sum(result.processor_s for result in results)
    tests = sum(result.counts.get("tests", 0) for result in results)
    verdict = "all passed" if all(result.passed for result in results) else "FAILED"
    return "\n".join([*rows, f"{'all':14} {verdict:10} {wall_s:7.0f} s  {processor_s:7.0f} s processor  {tests} tests"])


def kept(path: Path, results: Sequence[Result]) -> list[Result]:
    """Lines of an earlier call in `path`, of stages that did not run now."""
    lines = json.loads(path.read_text())["stages"] if path.exists() else []
    now = {result.stage for result in results}
    return [Result(**line) for line in lines if line["stage"] not in now]


def told(results: Sequence[Result], wall_s: float) -> str:
    """JSON, a line for each stage."""
    machine = {"processors": os.cpu_count(), "load": round(os.getloadavg()[2], 1), "python": platform.python_version()}
    lines = ",\n".join(f"  {json.dumps(asdict(result))}" for result in results)
    return f'{{"wall_s": {wall_s:.1f}, "machine": {json.dumps(machine)}, "stages": [\n{lines}\n]}}\n'


def _commit() -> str:
    answer = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return answer.stdout.strip()


def _line(result: Result) -> str:
    verdict = "passed" if result.passed else "FAILED"
    counts = ", ".join(f"{number} {what}" for what, number in sorted(result.counts.items(), reverse=True))
    return f"{result.stage:14} {verdict:10} {result.wall_s:7.0f} s  {result.processor_s:7.0f} s processor  {counts}"


def _log(stage: str) -> Path:
    return REPORTS / f"{stage}.log"


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join([f"--- the end of {shlex.quote(str(log.relative_to(ROOT)))}", *lines[-TAIL_LINES:], "---"])


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
