"""The verdict over a member: the kernel's word before the program's."""

import signal

import pytest

from drumline.contracts.heartbeats import LeaseTimes
from drumline.contracts.reasons import EndReason
from drumline_worker.host.messages import Failure, StopCause
from drumline_worker.shim.ending import Evidence, judge
from drumline_worker.shim.stopping import Stopper


def _exited(code: int) -> int:
    return code << 8


def _stopper(cause: StopCause | None, until: float) -> Stopper:
    """A stopper that carried out what was due `until` seconds after a stop with a grace of 10 s."""
    stopper = Stopper(LeaseTimes(1e9), 0.0)
    if cause is not None:
        stopper.stop(cause, 10.0, now=0.0)
    while stopper.due(until) is not None:
        pass
    return stopper


def _judge(
    status: int,
    *,
    result: bool = False,
    failure: Failure | None = None,
    cause: StopCause | None = None,
    until: float = 0.0,
    out_of_memory: bool = False,
    in_gang: bool = False,
    last_words: str = "",
) -> EndReason:
    stopper = _stopper(cause, until)
    return judge(Evidence(status, result, failure, stopper, out_of_memory, in_gang, last_words)).reason


STOPPED = Failure(reason=EndReason.CANCELLED)
PARTED = "F0101 client.cc:1] Terminating process because the JAX distributed service detected fatal errors. UNAVAILABLE"
RAISED = Failure(reason=EndReason.PROGRAM_ERROR, message="ValueError: x")


@pytest.mark.parametrize(
    ("reason", "actual"),
    [
        (EndReason.COMPLETED, _judge(_exited(0), result=True)),
        (EndReason.COMPLETED, _judge(_exited(0), result=True, cause=StopCause.CANCELLED, until=11)),
        (EndReason.PROGRAM_EXITED, _judge(_exited(0))),
        (EndReason.PROGRAM_EXITED, _judge(_exited(3), result=True)),
        (EndReason.PROGRAM_EXITED, _judge(_exited(1))),
        (EndReason.PROGRAM_EXITED, _judge(_exited(2), failure=RAISED)),
        (EndReason.PROGRAM_ERROR, _judge(_exited(1), failure=RAISED)),
        (EndReason.PROGRAM_ERROR, _judge(_exited(1), failure=RAISED, cause=StopCause.CANCELLED)),
        (EndReason.PROGRAM_ERROR, _judge(_exited(1), failure=STOPPED)),
        (EndReason.CANCELLED, _judge(_exited(1), failure=STOPPED, cause=StopCause.CANCELLED)),
        (EndReason.PREEMPTED, _judge(_exited(1), failure=STOPPED, cause=StopCause.PREEMPTED)),
        (EndReason.CANCELLED, _judge(_exited(143), cause=StopCause.CANCELLED, until=10)),
        (EndReason.PROGRAM_EXITED, _judge(_exited(143), cause=StopCause.CANCELLED, until=9)),
        (EndReason.PROGRAM_CRASHED, _judge(signal.SIGSEGV)),
        (EndReason.PROGRAM_CRASHED, _judge(signal.SIGSEGV, in_gang=True)),
        (EndReason.PEER_LOST, _judge(signal.SIGABRT, in_gang=True, last_words=PARTED)),
        (EndReason.PEER_LOST, _judge(signal.SIGSEGV, in_gang=True, last_words=PARTED)),
        (EndReason.PROGRAM_CRASHED, _judge(signal.SIGBUS, in_gang=True, last_words=PARTED)),
        (EndReason.PROGRAM_CRASHED, _judge(signal.SIGABRT, cause=StopCause.CANCELLED, until=11)),
        (EndReason.KILLED, _judge(signal.SIGKILL)),
        (EndReason.KILLED, _judge(signal.SIGTERM)),
        (EndReason.KILLED, _judge(signal.SIGKILL, cause=StopCause.CANCELLED, until=9)),
        (EndReason.OUT_OF_MEMORY, _judge(signal.SIGKILL, out_of_memory=True)),
        (EndReason.CANCELLED, _judge(signal.SIGTERM, cause=StopCause.CANCELLED, until=10)),
        (EndReason.CANCELLED, _judge(signal.SIGKILL, cause=StopCause.CANCELLED, until=21)),
        (EndReason.FENCED, _judge(signal.SIGKILL, cause=StopCause.FENCED, until=21)),
        (EndReason.LOST, _judge(signal.SIGKILL, cause=StopCause.LOST, until=21, out_of_memory=True)),
    ],
)
def test_the_reason_follows_from_the_evidence(reason: EndReason, actual: EndReason) -> None:
    assert actual == reason


def test_the_kernel_names_signal_or_exit_code_never_both() -> None:
    died = judge(Evidence(signal.SIGSEGV, False, None, _stopper(None, 0), False))
    assert (died.exit_code, died.signal) == (None, signal.SIGSEGV)
    exited = judge(Evidence(_exited(3), False, None, _stopper(None, 0), False))
    assert (exited.exit_code, exited.signal) == (3, None)
