"""States as data: what each means, which moves are legal, and where they end."""

from enum import StrEnum


class RunState(StrEnum):
    """Where a run is on its way."""

    QUEUED = "QUEUED"
    PLACED = "PLACED"
    RUNNING = "RUNNING"
    RETRY_WAIT = "RETRY_WAIT"
    CANCELLING = "CANCELLING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class AttemptState(StrEnum):
    """Where one gang placement of a run is."""

    DISPATCHED = "DISPATCHED"
    CLAIMED = "CLAIMED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    FINISHING = "FINISHING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    PREEMPTED = "PREEMPTED"
    LOST = "LOST"
    EXPIRED = "EXPIRED"


class MemberState(StrEnum):
    """Where the one process of an attempt on one host is."""

    PENDING = "PENDING"
    CLAIMED = "CLAIMED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    EXITED = "EXITED"
    LOST = "LOST"
    FENCED = "FENCED"


class DeviceState(StrEnum):
    """Whether a device may be given out."""

    FREE = "FREE"
    HELD = "HELD"
    RELEASING = "RELEASING"
    QUARANTINED = "QUARANTINED"


class CheckpointState(StrEnum):
    """Whether a run can resume from a checkpoint."""

    KEPT = "KEPT"
    DELETED = "DELETED"
    """The policy does not keep it: newer ones are there."""
    DAMAGED = "DAMAGED"
    """An attempt found it not to be what was written."""


class ArtifactState(StrEnum):
    """Whether the bytes of an artifact are there."""

    ARRIVING = "ARRIVING"
    """Its host has them, and sends them."""
    STORED = "STORED"
    LOST = "LOST"
    """They never came, or were refused; the reason says why."""


RUN_MEANING: dict[RunState, str] = {
    RunState.QUEUED: "Waits for devices.",
    RunState.PLACED: "Has its devices; the workers are starting it.",
    RunState.RUNNING: "The program runs on all its replicas.",
    RunState.RETRY_WAIT: "Failed for a reason worth another attempt; waits before it.",
    RunState.CANCELLING: "Was asked to stop; the program has its grace period.",
    RunState.SUCCEEDED: "The program returned.",
    RunState.FAILED: "Ended without a result; the reason says why.",
    RunState.CANCELLED: "Was stopped on request.",
}

_R, _A, _M, _D = RunState, AttemptState, MemberState, DeviceState

RUN_TRANSITIONS: dict[RunState, frozenset[RunState]] = {
    _R.QUEUED: frozenset({_R.PLACED, _R.FAILED, _R.CANCELLED}),
    _R.PLACED: frozenset({_R.RUNNING, _R.QUEUED, _R.RETRY_WAIT, _R.CANCELLING, _R.FAILED, _R.SUCCEEDED}),
    _R.RUNNING: frozenset({_R.RETRY_WAIT, _R.CANCELLING, _R.SUCCEEDED, _R.FAILED}),
    _R.RETRY_WAIT: frozenset({_R.QUEUED, _R.CANCELLED, _R.FAILED}),
    _R.CANCELLING: frozenset({_R.CANCELLED, _R.SUCCEEDED, _R.FAILED}),
    _R.SUCCEEDED: frozenset(),
    _R.FAILED: frozenset(),
    _R.CANCELLED: frozenset(),
}
"""PLACED goes back to QUEUED when the attempt expired before all its members claimed: not counted as a failure."""

_ENDS_OF_LIFE = frozenset({_A.FAILED, _A.CANCELLED, _A.PREEMPTED, _A.LOST})
ATTEMPT_TRANSITIONS: dict[AttemptState, frozenset[AttemptState]] = {
    _A.DISPATCHED: frozenset({_A.CLAIMED, _A.EXPIRED, _A.CANCELLED, _A.FAILED, _A.PREEMPTED, _A.LOST}),
    _A.CLAIMED: frozenset({_A.STARTING, _A.RUNNING, _A.FINISHING}) | _ENDS_OF_LIFE,
    _A.STARTING: frozenset({_A.RUNNING, _A.FINISHING}) | _ENDS_OF_LIFE,
    _A.RUNNING: frozenset({_A.FINISHING}) | _ENDS_OF_LIFE,
    _A.FINISHING: frozenset({_A.SUCCEEDED}) | _ENDS_OF_LIFE,
    **{end: frozenset() for end in (*_ENDS_OF_LIFE, _A.SUCCEEDED, _A.EXPIRED)},
}

_GONE = frozenset({_M.EXITED, _M.LOST, _M.FENCED})
MEMBER_TRANSITIONS: dict[MemberState, frozenset[MemberState]] = {
    _M.PENDING: frozenset({_M.CLAIMED, _M.FENCED, _M.LOST}),
    _M.CLAIMED: frozenset({_M.STARTING, _M.RUNNING}) | _GONE,
    _M.STARTING: frozenset({_M.RUNNING}) | _GONE,
    _M.RUNNING: _GONE,
    **{end: frozenset() for end in _GONE},
}

DEVICE_TRANSITIONS: dict[DeviceState, frozenset[DeviceState]] = {
    _D.FREE: frozenset({_D.HELD, _D.QUARANTINED}),
    _D.HELD: frozenset({_D.RELEASING, _D.FREE, _D.QUARANTINED}),
    _D.RELEASING: frozenset({_D.FREE, _D.QUARANTINED}),
    _D.QUARANTINED: frozenset({_D.FREE}),
}

TERMINAL_RUN = frozenset(state for state, moves in RUN_TRANSITIONS.items() if not moves)
TERMINAL_ATTEMPT = frozenset(state for state, moves in ATTEMPT_TRANSITIONS.items() if not moves)
TERMINAL_MEMBER = frozenset(state for state, moves in MEMBER_TRANSITIONS.items() if not moves)
