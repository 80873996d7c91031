"""How a member ends: no process of it survives, all that it sent is kept, one verdict is written (P14).

What the kernel says counts first, what the program said second.
"""

import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from drumline.contracts.reasons import REASONS, EndReason
from drumline.wording import plural
from drumline_worker.host.messages import Failure, StopCause
from drumline_worker.host.rundir import Ending, RunDirectory, StartOrder
from drumline_worker.host.system import end_all_children, now
from drumline_worker.host.tally import BegunTrace, Tally
from drumline_worker.shim.intake import Inbox, Intake, OutputBuffer, Pump
from drumline_worker.shim.journal import Journal, SpoolFullError
from drumline_worker.shim.runner_process import SendLeft, start_runner
from drumline_worker.shim.stopping import Action, Stopper

_FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
"""Signals that a program does not get by its own fault."""
_PEER_LOST = "JAX distributed service detected fatal errors"
"""What JAX says before it aborts the processes that are left of a gang."""
_BY_ABORT = frozenset({signal.SIGABRT, signal.SIGSEGV})
"""How such a process dies: while Python's stacks are written for an abort, other threads go on, and a frame that goes
away under the one who reads it turns SIGABRT into SIGSEGV."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known when the runner has been reaped."""

    wait_status: int
    has_result: bool
    failure: Failure | None
    stopper: Stopper
    out_of_memory: bool
    in_gang: bool = False
    last_words: str = ""
    """The end of stderr."""
    hang: str = ""
    """What the watchdog saw, if it was the one of this member."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The reason, and a sentence for people."""

    reason: EndReason
    message: str
    exit_code: int | None
    signal: int | None


def judge(evidence: Evidence) -> Verdict:
    """The verdict. A program can claim failure, never success: success is exit code 0 together with a result.

    What counts first: that it hung; a signal, by who sent it; a result with exit code 0, also after it was told to
    stop; the failure that it told of; that it was told to stop; its exit code.
    """
    code = os.waitstatus_to_exitcode(evidence.wait_status)
    if Action.DUMP in evidence.stopper.done and evidence.stopper.cause is StopCause.HANG and code != 0:
        message = evidence.hang or "Stopped with its gang, which hangs."
        return Verdict(EndReason.HANG, message, code if code > 0 else None, -code if code < 0 else None)
    if code < 0:
        reason, message = _by_signal(-code, evidence)
        return Verdict(reason, message, None, -code)
    reason, message = _by_exit(code, evidence)
    return Verdict(reason, message, code, None)


def _by_exit(code: int, evidence: Evidence) -> tuple[EndReason, str]:
    cause = evidence.stopper.cause
    if code == 0 and evidence.has_result:
        return EndReason.COMPLETED, ""
    if code == 1 and evidence.failure is not None:
        if evidence.failure.reason is EndReason.CANCELLED:
            return _stop_verdict(cause, evidence.failure.message)
        return evidence.failure.reason, evidence.failure.message
    if cause is not None and Action.TERM in evidence.stopper.done:
        return _stop_verdict(cause, f"exited with code {code} after SIGTERM")
    when = " before main returned" if code == 0 else ""
    return EndReason.PROGRAM_EXITED, f"The program's process exited with code {code}{when}."


def _stop_verdict(cause: StopCause | None, message: str) -> tuple[EndReason, str]:
    if cause is None:
        return EndReason.PROGRAM_ERROR, message or "The program stopped itself although nobody asked it to."
    reason = EndReason(cause.value)
    return reason, REASONS[reason].sentence


def _by_signal(number: int, evidence: Evidence) -> tuple[EndReason, str]:
    name = _signal_name(number)
    cause = evidence.stopper.cause
    ours = {Action.KILL: signal.SIGKILL, Action.TERM: signal.SIGTERM}
    if cause is not None and any(ours.get(action) == number for action in evidence.stopper.done):
        return EndReason(cause.value), f"{REASONS[EndReason(cause.value)].sentence} It had to be ended by {name}."
    if number == signal.SIGKILL and evidence.out_of_memory:
        return EndReason.OUT_OF_MEMORY, "The kernel killed the program's process because memory ran out."
    if number in _BY_ABORT and evidence.in_gang and _PEER_LOST in evidence.last_words:
        return EndReason.PEER_LOST, "JAX ended the process, as another member of the gang is gone."
    if number in _FROM_OUTSIDE:
        return EndReason.KILLED, f"Something outside Drumline sent {name} to the program's process."
    return EndReason.PROGRAM_CRASHED, f"The program's process died by {name}."


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class OomWatch:
    """Whether the kernel killed for memory since this was made: of our own cgroup where it counts, else of the host."""

    def __init__(self) -> None:
        self._before = _oom_kills()

    def has_occurred(self) -> bool:
        """True when a counter moved."""
        return any(_oom_kills().get(name, 0) > count for name, count in self._before.items())


def _oom_kills() -> dict[str, int]:
    counts = {}
    for source in (Path("/proc/vmstat"), *_cgroup_files()):
        for line in _lines(source):
            name, _, value = line.partition(" ")
            if name in ("oom_kill", "oom_group_kill") and value.strip().isdigit():
                counts[f"{source}:{name}"] = int(value)
    return counts


def _cgroup_files() -> list[Path]:
    files = []
    for line in _lines(Path("/proc/self/cgroup")):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            files.append(Path(f"/sys/fs/cgroup{path}/memory.events"))
        elif "memory" in controllers.split(","):
            files.append(Path(f"/sys/fs/cgroup/memory{path}/memory.oom_control"))
    return files


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


_PROOF_S = 10.0
"""A process that survives SIGKILL for so long hangs in the kernel; its devices are not given out."""

_READ_S = 10.0
"""A trace as large as is read at all takes a second or two."""
_READ_BYTES = 262_144

_NEVER_SENT = "the program ended before it had handed over all that it logged"
_NEVER_READ = "the program ended before its trace was read"
_MOST_NAMED = 5
_MAX_LOST = 2**53 - 1
"""What a gap can say. The program may have written anything into its counters."""


def too_late(stopper: Stopper, at: float) -> Ending | None:
    """The end of a member whose lease was over before its process was started, as its host stood still; else None.

    By now it may run elsewhere. `at` is the present by CLOCK_BOOTTIME.
    """
    if stopper.due(at) is None:
        return None
    message = "The server had not been heard of for so long that its process was not started."
    return Ending(reason=EndReason.NOT_STARTED, message=message, last_seq=0, ended_at=now(), devices_released=True)


def read_traces(
    directory: RunDirectory, order: StartOrder, send_left: SendLeft, inbox: Inbox, left: list[BegunTrace]
) -> None:
    """Has a process of its own read them, for a few seconds; then nothing of it is left.

    Their files are the program's, so that whoever reads them may come to grief.
    """
    inbox.hear_another()
    reader = start_runner(directory, order, partial(send_left, left))
    until = time.monotonic() + _READ_S
    while (left_s := until - time.monotonic()) > 0 and select.select([reader.socket], [], [], left_s)[0]:
        try:
            raw = reader.socket.recv(_READ_BYTES)
        except OSError:
            break
        if not raw or not inbox.feed(raw):
            break
    end_all_children(_PROOF_S, lambda _pid, _status: None)
    reader.close()


class Finish:
    """Made before the runner starts, since it compares the kernel's counters.

    `read_traces` has those that are complete on the program's disk sent to the inbox.
    """

    def __init__(
        self,
        stopper: Stopper,
        inbox: Inbox,
        journal: Journal,
        *,
        in_gang: bool,
        read_traces: Callable[[list[BegunTrace]], None],
    ) -> None:
        self._read_traces = read_traces
        self._in_gang = in_gang
        self._stopper = stopper
        self._inbox = inbox
        self._journal = journal
        self._oom = OomWatch()
        self._out_of_memory = False

    def end_program(self, intake: Intake, output: OutputBuffer, logged: Tally) -> bool:
        """Ends the descendants, drains socket and pipes; whether nothing of the program is left.

        What the program logged and never handed over is a gap at the end.
        """
        released = end_all_children(_PROOF_S, lambda _pid, _status: None)
        self._out_of_memory = self._oom.has_occurred()  # before others of us need some
        intake.drain()  # only now: as long as anything lives it may write more
        output.close()
        self._report_loss("metrics", logged.values - self._inbox.values, "value", output)
        self._report_loss("media", logged.media - self._inbox.media, "media value", output)
        self._report_loss("reduction", logged.reductions - self._inbox.reductions, "reduction", output)
        self._end_traces(logged, output)
        return released

    def _end_traces(self, logged: Tally, output: OutputBuffer) -> None:
        """Those that are complete on the disk are read; the others are a gap that names their steps."""
        if left := self._traces_left(logged):
            self._read_traces(left)
        if lost := self._traces_left(logged):
            steps = ", ".join(f"step {one.step} (call {one.call} of strategy.run)" for one in lost[:_MOST_NAMED])
            more = f" and {len(lost) - _MOST_NAMED} more" if len(lost) > _MOST_NAMED else ""
            detail = f"{steps}{more}: {_NEVER_READ}"
            self._journal.gap("profile", len(lost), detail=detail)
            output.note(f"[drumline: {plural(len(lost), 'traced step')} lost here: {detail}]")

    def _traces_left(self, logged: Tally) -> list[BegunTrace]:
        return [one for one in logged.traces if one.call not in self._inbox.traced]

    def _report_loss(self, what: str, lost: int, noun: str, output: OutputBuffer) -> None:
        if lost > 0:
            self._journal.gap(what, min(lost, _MAX_LOST), detail=_NEVER_SENT)
            output.note(f"[drumline: {plural(lost, noun)} lost here: {_NEVER_SENT}]")

    def make_ending(self, status: int, released: bool, output: OutputBuffer, pump: Pump, hang: str) -> Ending:
        """Writes the rest of the spool, judges."""
        verdict = self._verdict(status, hang, output.last_words)
        try:
            pump.flush()
        except SpoolFullError as error:
            verdict = Verdict(EndReason.SPOOL_FULL, f"Results could not be kept: {error}", None, None)
        return Ending(
            reason=verdict.reason,
            message=verdict.message,
            exit_code=verdict.exit_code,
            signal=verdict.signal,
            last_seq=self._journal.last_seq,
            ended_at=now(),
            devices_released=released,
            output_bytes=output.size_bytes,
        )

    def _verdict(self, status: int, hang: str, last_words: str) -> Verdict:
        return judge(
            Evidence(
                wait_status=status,
                has_result=self._inbox.has_result,
                failure=self._inbox.failure,
                stopper=self._stopper,
                out_of_memory=self._out_of_memory,
                in_gang=self._in_gang,
                last_words=last_words,
                hang=hang,
            )
        )
