"""Watching a run: what its events say, drawn until it ends."""

import sys
import threading
from collections import deque
from collections.abc import Iterable
from typing import Any

import click

from drumline.cli.exits import DETACHED, OK, RUN_FAILED
from drumline.cli.options import inert_json, json_text
from drumline.contracts.api import RunEvent, RunWarning
from drumline.contracts.programs import WAITING_FOR_TELEMETRY
from drumline.contracts.reasons import EndReason
from drumline.contracts.states import RUN_MEANING, RunState
from drumline.errors import DrumlineError
from drumline.progress import Progress, open_progress
from drumline.resources.runs import Run
from drumline.resources.text import describe_reason, why_lines
from drumline.wording import duration, plain, plural, size_text

MAX_SCALARS = 8
SYSTEM_PREFIX = "sys/"
"""Of metrics that the worker measures; the rate is shown anyway."""
LAST_LINES = 20
REASON_EVERY_S = 2.0
WAITING = frozenset({RunState.QUEUED, RunState.PLACED, RunState.RETRY_WAIT, RunState.CANCELLING})
LAST_BYTES = 16 * 1024
MOST_LINE = 16 * 1024
"""Characters of a line without an end that are kept back; a longer one is printed in pieces."""
AWAY_S = 120.0
"""So long the server may be away between the run's last event and the question how it ended."""


def follow(run: Run, *, detach: bool, as_json: bool, with_logs: bool) -> None:
    """Prints a new run's address, then watches it to its end and exits as it ended; `detach` leaves it alone."""
    click.echo(f"{run.id}  {run.url}", err=as_json)
    show_warnings(run.details.warnings)
    if detach:
        if as_json:
            click.echo(json_text(run.details))
        return
    watch_to_end(run, with_logs=with_logs)
    report(run, as_json=as_json, with_logs=with_logs)


def show_warnings(warnings: Iterable[RunWarning]) -> None:
    """What the user may not have meant, on stderr."""
    for warning in warnings:
        click.echo(plain(f"warning: {warning.message}"), err=True)


def watch_to_end(run: Run, *, with_logs: bool) -> None:
    """Draws the run's progress, and what the program prints, on stderr until it ends.

    Ctrl-C says how to watch again and exits with 130.
    """
    progress = open_progress()
    view = View(run, progress, _Output(run, progress) if with_logs else None)
    reasons = _Reasons(view)
    try:
        view.open()
        reasons.start()
        for event in run.events(after=run.details.last_event, on_cut=view.cut):
            view.show(event)
        view.finish()
        run.wait(AWAY_S)
    except KeyboardInterrupt:
        progress.close()
        click.echo(
            f"\ndetached; {run.id} keeps running\n  watch it: drumline watch {run.id}\n"
            f"  stop it:  drumline cancel {run.id}",
            err=True,
        )
        sys.exit(DETACHED)
    finally:
        reasons.stop()
        progress.close()


def report(run: Run, *, as_json: bool, with_logs: bool) -> None:
    """Prints how an ended run ended, its result on stdout, and exits with 1 unless it succeeded.

    `with_logs`: its output stands above already.
    """
    succeeded = run.state is RunState.SUCCEEDED
    if as_json:
        click.echo(json_text(run.details))
    else:
        _report_text(run, succeeded, with_logs)
    sys.exit(OK if succeeded else RUN_FAILED)


def _report_text(run: Run, succeeded: bool, with_logs: bool) -> None:
    details = run.details
    if succeeded:
        import json

        click.echo(inert_json(json.dumps(details.result)))
        if details.not_finite:
            named = ", ".join(f"{name} is {value}" for name, value in details.not_finite.items())
            click.echo(plain(f"warning: the result is not all finite numbers: {named}"), err=True)
    elif run.state is RunState.FAILED:
        hung = details.reason is not None and details.reason.code is EndReason.HANG
        for line in _stacks(run) if hung else () if with_logs else _last_lines(run):
            click.echo(f"  | {line}", err=True)
        click.echo(plain(describe_reason(details.reason)), err=True)
    took = f" in {duration((details.ended_at - details.created_at).total_seconds())}" if details.ended_at else ""
    click.echo(f"{details.state}{took}  {run.url}", err=True)


def _last_lines(run: Run) -> list[str]:
    """The end of the output, where a traceback stands; nothing if it cannot be had."""
    try:
        text = "".join(segment.text for segment in run.logs(start=-LAST_BYTES))
    except DrumlineError:
        return []
    return list(deque(plain(text).splitlines(), maxlen=LAST_LINES))


def _stacks(run: Run) -> list[str]:
    """What each process was doing when it was found to hang; the end of the output where there are none."""
    try:
        stacks = run.stacks()
    except DrumlineError:
        return []
    lines = []
    for member, text in stacks:
        lines += [f"rank {member.rank} on {member.host_name}", *(f"  {line}" for line in plain(text).splitlines()), ""]
    return lines or _last_lines(run)


class _Output:
    """What the program prints, line by line as it comes."""

    def __init__(self, run: Run, progress: Progress) -> None:
        self._run = run
        self._progress = progress
        self._follower = run.follow_output()
        self._unfinished = ""
        self._is_behind = False

    def hear(self, event: RunEvent) -> None:
        """Prints what came with the event. What the server does not give now comes with the next one."""
        try:
            for segment in self._follower.hear(event):
                self._print(segment.text)
            self._is_behind = False
        except DrumlineError:
            self._is_behind = True

    def finish(self) -> None:
        """Prints the last line, which may have no end, and says so where something is missing."""
        if self._unfinished:
            self._progress.line(plain(self._unfinished))
        if self._is_behind:
            self._progress.line(f"the end of the output could not be read; see it with: drumline logs {self._run.id}")

    def _print(self, text: str) -> None:
        *lines, self._unfinished = (self._unfinished + text).split("\n")
        for line in lines:
            self._progress.line(plain(line.removesuffix("\r")))
        if len(self._unfinished) > MOST_LINE:
            self._progress.line(plain(self._unfinished))
            self._unfinished = ""


class _Reasons(threading.Thread):
    """Asks now and then why a run still waits: that changes with other runs, of which its own events tell nothing."""

    def __init__(self, view: "View") -> None:
        super().__init__(name="reasons", daemon=True)
        self._view = view
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(REASON_EVERY_S):
            self._view.follow_reason()

    def stop(self) -> None:
        """Ends it, and waits for the question that is being asked."""
        self._ended.set()
        if self.is_alive():
            self.join(REASON_EVERY_S)


class View:
    """Turns events into lines and progress."""

    def __init__(self, run: Run, progress: Progress, output: _Output | None = None) -> None:
        self._run = run
        self._progress = progress
        self._output = output
        self._names: set[str] = set()
        self._is_cut = False
        self._step: tuple[int, int | None, float | None] | None = None
        self._executors: set[str] = set()
        self._lost: dict[str, tuple[int, int]] = {}
        """Records and bytes of each kind, as far as either is known."""
        self._is_finishing = self._is_made_to_wait = False
        self._said: tuple[object, ...] = ()

    def open(self) -> None:
        """Says where the run is now; what happened before is not told again."""
        details = self._run.details
        self._say_state(details.state)
        self._say_why()
        if details.progress.step is not None:
            self._show_progress(details.progress.model_dump())

    def cut(self, cause: str) -> None:
        """Says once that the connection is lost; the stream resumes by itself when the server is back."""
        if not self._is_cut:
            self._is_cut = True
            self._progress.line(f"connection lost ({plain(cause)}); trying again until it is back")

    def show(self, event: RunEvent) -> None:
        """Draws one event; kinds that a watcher need not see are passed over."""
        if self._is_cut:
            self._is_cut = False
            self._progress.line("connected again")
        if self._output is not None:
            self._output.hear(event)
        draw = getattr(self, f"_show_{event.kind}", None)
        if draw is not None:
            draw(event.body)

    def finish(self) -> None:
        """Draws the last step with the last values, and says once what is missing."""
        if self._output is not None:
            self._output.finish()
        for what, (count, size) in self._lost.items():
            self._progress.line(plain(_loss_text(what, count, size)))
        if self._step:
            self._draw_step()

    def _show_state(self, body: dict[str, Any]) -> None:
        if body.get("terminal"):
            return
        self._say_state(str(body.get("state")))
        if body.get("state") in (RunState.QUEUED, RunState.RETRY_WAIT):
            self._run.refresh()
            self._say_why()

    def _say_state(self, state: str) -> None:
        meaning = RUN_MEANING.get(RunState(state), "") if state in RunState.__members__ else ""
        self._progress.line(plain(f"{state}  {meaning}".strip()))

    def follow_reason(self) -> None:
        """Asks why the run still waits, and says so if it is for another reason or place in the queue than before."""
        if self._run.details.state not in WAITING and not (self._is_finishing or self._is_made_to_wait):
            return
        try:
            self._run.refresh()
        except DrumlineError:
            return  # the stream of events tells that the connection is lost, and when it is back
        self._say_why()

    def _say_why(self) -> None:
        why = self._run.details.why
        if why is None or (said := (why.rule, why.position)) == self._said:
            return
        self._said = said
        for line in why_lines(why):
            self._progress.line(f"  {line}")

    def _show_attempt(self, body: dict[str, Any]) -> None:
        if body.get("number", 1) != 1 and body.get("state") == "DISPATCHED":
            self._progress.line(plain(f"attempt {body['number']}"))
        self._is_finishing = body.get("state") == "FINISHING"

    def _show_member(self, body: dict[str, Any]) -> None:
        waits = body.get("phase") == WAITING_FOR_TELEMETRY and body.get("state") in ("STARTING", "RUNNING")
        if waits != self._is_made_to_wait:
            self._progress.line("waits for its telemetry to be taken" if waits else "its telemetry is taken again")
        self._is_made_to_wait = waits

    def _show_placement(self, body: dict[str, Any]) -> None:
        """Each executor once: `auto` has not chosen yet, and ragged batches go back and forth between two."""
        executor, replicas = str(body.get("executor")), body.get("replicas", 0)
        if body.get("confirmed") and executor not in self._executors | {"auto"}:
            self._executors.add(executor)
            self._progress.line(plain(f"{plural(int(replicas), 'replica')}, executor {executor}"))

    def _show_gap(self, body: dict[str, Any]) -> None:
        count, size = self._lost.get(str(body.get("what")), (0, 0))
        self._lost[str(body.get("what"))] = count + int(body.get("count", 0)), size + int(body.get("size_bytes", 0))

    def _show_progress(self, body: dict[str, Any]) -> None:
        if isinstance(body.get("step"), int):
            self._step = (body["step"], body.get("total_steps"), body.get("steps_per_s"))
            self._draw_step()

    def _show_metrics(self, body: dict[str, Any]) -> None:
        self._names |= {name for name in body.get("names", ()) if not name.startswith(SYSTEM_PREFIX)}

    def _draw_step(self) -> None:
        assert self._step is not None
        self._progress.update(*self._step, self._scalars_at(self._step[0]))

    def _scalars_at(self, step: int) -> dict[str, float]:
        """What was logged last up to `step`; nothing where the server does not answer, and watching continues."""
        names = sorted(self._names)[:MAX_SCALARS]
        if not names:
            return {}
        try:
            metrics = self._run.metrics(*names, buckets=1, end=step)
        except DrumlineError:
            return {}
        newest = {series.name: series.points.last[-1] for series in metrics.series if series.points.last}
        return {plain(name): value for name, value in newest.items() if value is not None}


def _loss_text(what: str, count: int, size: int) -> str:
    """What is lost of a kind: output is told in bytes, what else there is in records."""
    if what == "log" and size:
        return f"{size_text(size)} of output lost"
    return f"{plural(count, f'{what} record')} lost" if count else f"{what} records lost, nobody knows how many"
