"""Records the five traces and one step.

A trace begins with a command, a file or a kill, and ends when its end can be seen from outside: a file of the program,
the page, the REST API. Background is what two idle recordings have too, each of `IDLE_S`, longer than any period of a
loop or heartbeat: one without a run, and one with a run that waits and is asked for as often as a trace asks. A path of
calls of the background is left out; a function counts if it is on another path. So a function that both use counts
where the trace led to it. Each trace is recorded `TIMES` times, and what most of them have counts; a dying host once.
"""

import json
import mmap
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from scripts.house.browser import Dashboard
from scripts.house.deployment import REPLICAS, Deployment, TraceError, deployed, wait_until
from scripts.house.programs import STEP, TRACED

SUBMIT, REDUCTION, OUTPUT, CANCEL, HOST_DIES = "submit", "reduction", "line of output", "cancel", "host dies"
FIRST_STEP, STEP_AGAIN = "first step", "next step"
IDLE, TIMES, IDLE_S = "idle", 3, 20.0
_SETTLE_S = 3.0
"""So that what a change of state left to do is over before the next recording."""


@dataclass(slots=True)
class Session:
    """The recorder's folder, and which recording is which."""

    python: Path
    folder: Path
    recordings: dict[int, str] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def prepare(self, root: Path) -> None:
        """An empty folder, to which the interpreter writes from now on."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        (self.folder / "control").write_bytes(b"\0")
        (self.python.parents[1] / "house.json").write_text(json.dumps({"folder": str(self.folder), "root": str(root)}))

    def close(self) -> None:
        """The interpreter records nothing any more."""
        (self.python.parents[1] / "house.json").unlink(missing_ok=True)

    def number(self, name: str) -> int:
        """Of a new recording."""
        number = next(self._numbers)
        self.recordings[number] = name
        return number

    @contextmanager
    def record(self, name: str) -> Iterator[None]:
        """All processes record meanwhile."""
        with (self.folder / "control").open("r+b") as file, mmap.mmap(file.fileno(), 1) as control:
            control[0] = self.number(name)
            try:
                yield
            finally:
                control[0] = 0


@dataclass(slots=True)
class Tracer:
    """Records one trace after the other on one deployment."""

    session: Session
    deployment: Deployment
    folder: Path
    dashboard: Dashboard
    shown: list[Any] = field(default_factory=list)
    """What the browser covered in each recording of the reduction. Any: V8's own JSON."""
    shown_idle: Any = None
    """And while nothing was reduced."""

    def trace_all(self) -> None:
        """The dying host last."""
        self._submit(record=False)
        self._idle_without_run()
        for _ in range(TIMES):
            self._submit(record=True)
        self._with_a_run_that_holds()

    def _submit(self, *, record: bool) -> None:
        """Until the program's first line, which leaves a file."""
        if not record:
            run = self._start()
        else:
            with self.session.record(SUBMIT):
                run = self._start()
        (self.folder / run / "end").touch()
        wait_until(lambda: self.deployment.state(run) == "SUCCEEDED", f"{run} succeeds")
        self._settle()

    def _start(self) -> str:
        folder = self.folder / str(time.monotonic_ns())
        folder.mkdir()
        program = self.folder / "traced.py"
        program.write_text(f"{TRACED}# {folder.name}: new to the server each time, so that it is sent\n")
        printed = self.deployment.drumline(
            "submit", str(program), "--replicas", str(REPLICAS), "--detach", "--json", "--record", "reductions_every=1",
            "-p", f"folder={folder}",
        )  # fmt: skip
        wait_until((folder / "began").exists, "the program's first line")
        run = _run_id(json.loads(printed))
        (self.folder / run).symlink_to(folder)
        return run

    def _settle(self) -> None:
        wait_until(self.deployment.is_free, "the devices are free")
        time.sleep(_SETTLE_S)

    def _idle_without_run(self) -> None:
        self._settle()
        with self.session.record(IDLE):
            time.sleep(IDLE_S)

    def _with_a_run_that_holds(self) -> None:
        self._cancel(self._start(), record=False)
        for repeat in range(TIMES):
            run = self._start()
            if repeat == 0:
                self._trace_reductions(run)
                self._trace_output(run)
            self._cancel(run, record=True)
        run = self._start()
        time.sleep(_SETTLE_S)
        with self.session.record(HOST_DIES):
            self.deployment.kill_host()
            wait_until(lambda: self.deployment.state(run) != "RUNNING", f"{run} is taken from its host")

    def _cancel(self, run: str, *, record: bool) -> None:
        """Until the API says that the run has ended."""
        wait_until(lambda: self.deployment.state(run) == "RUNNING", f"{run} runs")
        time.sleep(_SETTLE_S)
        if not record:
            self.deployment.drumline("cancel", run)
        else:
            with self.session.record(CANCEL):
                self.deployment.drumline("cancel", run)
                wait_until(lambda: self.deployment.state(run) == "CANCELLED", f"{run} is cancelled")
        self._settle()

    def _trace_reductions(self, run: str) -> None:
        """Until the page shows it; the page is open and has shown one before. Then run and page idle."""
        page = self.dashboard.open(f"/runs/{run}/reductions", self._login())
        (self.folder / run / "reduce-0").touch()
        page.wait_for_reduction()
        for repeat in range(1, TIMES + 1):
            time.sleep(_SETTLE_S)
            page.forget()
            with self.session.record(REDUCTION):
                (self.folder / run / f"reduce-{repeat}").touch()
                page.wait_for_next_reduction()
            self.shown.append(page.take())
        time.sleep(_SETTLE_S)
        page.forget()
        self._idle_with_run(run)
        self.shown_idle = page.take()
        page.close()

    def _trace_output(self, run: str) -> None:
        """Until `drumline logs` has printed the line; it follows the run and has printed one before."""
        printed = self.folder / run / "printed"
        with self.deployment.following(run, printed):
            for line in range(TIMES + 1):
                if line == 0:
                    self._print(run, line, printed)
                else:
                    time.sleep(_SETTLE_S)
                    with self.session.record(OUTPUT):
                        self._print(run, line, printed)

    def _print(self, run: str, line: int, printed: Path) -> None:
        (self.folder / run / f"print-{line}").touch()
        wait_until(lambda: f"line {line}\n" in printed.read_text(), "the line is printed")

    def _idle_with_run(self, run: str) -> None:
        until = time.monotonic() + IDLE_S
        with self.session.record(IDLE):
            wait_until(lambda: self.deployment.state(run) == "RUNNING" and time.monotonic() > until, f"{run} idles")

    def _login(self) -> str:
        return self.deployment.drumline("server", "login-link").strip()


def _run_id(printed: Any) -> str:
    run = printed.get("run", printed)
    return str(run["id"])


def trace(session: Session, folder: Path, dashboard: Dashboard, built: Path) -> Tracer:
    """Records everything; the tracer has what the browser covered. Raises TraceError."""
    with deployed(session.python, folder, built) as deployment:
        tracer = Tracer(session, deployment, folder, dashboard)
        tracer.trace_all()
    _step(session)
    return tracer


def _step(session: Session) -> None:
    numbers = [str(session.number(name)) for name in (FIRST_STEP, STEP_AGAIN)]
    done = subprocess.run(
        [session.python, "-c", STEP, str(session.folder / "control"), *numbers], capture_output=True, text=True
    )
    if done.returncode:
        raise TraceError(f"one step: {done.stderr}")
