"""Why an attempt or a run ended: a closed list, each with what follows from it.

CONTRIBUTING.md tells what else a new reason needs.
"""

from dataclasses import dataclass
from enum import StrEnum

from drumline.contracts.states import AttemptState


class Category(StrEnum):
    """Who can do something about it, and so which count of the run's `retries` pays for another attempt."""

    USER = "user"
    """The program or its user: `retries.user` pays."""
    INFRASTRUCTURE = "infrastructure"
    """The host: `retries.infrastructure` pays, and the host may be quarantined for it."""
    CAPACITY = "capacity"
    """There was no room: nothing pays."""
    POLICY = "policy"
    """A limit that somebody set: nothing pays."""
    CONTROL_PLANE = "control_plane"
    """Server or worker: nothing pays, up to a bound on such failures of one run."""


class EndReason(StrEnum):
    """The typed reason that stands beside a terminal state."""

    COMPLETED = "COMPLETED"
    PROGRAM_ERROR = "PROGRAM_ERROR"
    PROGRAM_CRASHED = "PROGRAM_CRASHED"
    PROGRAM_EXITED = "PROGRAM_EXITED"
    BAD_PROGRAM = "BAD_PROGRAM"
    BAD_RESULT = "BAD_RESULT"
    KILLED = "KILLED"
    SHIM_KILLED = "SHIM_KILLED"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    HANG = "HANG"
    PEER_LOST = "PEER_LOST"
    GANG_INCOMPLETE = "GANG_INCOMPLETE"
    VERSIONS_DIFFER = "VERSIONS_DIFFER"
    PROGRAMS_DIFFER = "PROGRAMS_DIFFER"
    DIVERGED = "DIVERGED"
    LOST = "LOST"
    HOST_REBOOTED = "HOST_REBOOTED"
    START_FAILED = "START_FAILED"
    NOT_STARTED = "NOT_STARTED"
    BUNDLE_UNAVAILABLE = "BUNDLE_UNAVAILABLE"
    SPOOL_FULL = "SPOOL_FULL"
    NOT_CLAIMED = "NOT_CLAIMED"
    QUEUE_LIMIT = "QUEUE_LIMIT"
    RUN_LIMIT = "RUN_LIMIT"
    CANCELLED = "CANCELLED"
    PREEMPTED = "PREEMPTED"
    POISON = "POISON"
    FENCED = "FENCED"


@dataclass(frozen=True, slots=True)
class ReasonFacts:
    """What follows from a reason."""

    category: Category
    retryable: bool
    """Whether the run is tried again; `category` says what pays for it."""
    sentence: str
    """For people, where no message says more."""
    attempt_state: AttemptState = AttemptState.FAILED
    """What the attempt becomes."""
    is_consequence: bool = False
    """Whether a member ends like this because another one ended, whose reason tells more."""
    is_of_gang: bool = False
    """Whether its message names the member that is meant, which may be another than the one that ended like this."""
    outranks_cancel: bool = False
    """Whether a run that is being cancelled still ends FAILED of it; any other end of its program is the cancel's."""


REASONS: dict[EndReason, ReasonFacts] = {
    EndReason.COMPLETED: ReasonFacts(
        Category.USER, False, "The program returned its result.", attempt_state=AttemptState.SUCCEEDED
    ),
    EndReason.PROGRAM_ERROR: ReasonFacts(
        Category.USER, True, "The program raised an exception; the log has the traceback.", outranks_cancel=True
    ),
    EndReason.PROGRAM_CRASHED: ReasonFacts(Category.USER, True, "The program's process died by its own signal."),
    EndReason.PROGRAM_EXITED: ReasonFacts(
        Category.USER, True, "The program ended its process with a non-zero exit code."
    ),
    EndReason.BAD_PROGRAM: ReasonFacts(
        Category.USER, False, "The program could not be loaded or has no such entrypoint.", outranks_cancel=True
    ),
    EndReason.BAD_RESULT: ReasonFacts(
        Category.USER, False, "The program returned something that JSON cannot hold.", outranks_cancel=True
    ),
    EndReason.KILLED: ReasonFacts(
        Category.INFRASTRUCTURE, True, "The program's process was killed from outside, or by itself; often for memory."
    ),
    EndReason.SHIM_KILLED: ReasonFacts(
        Category.INFRASTRUCTURE, True, "The worker's process that looked after the program was killed."
    ),
    EndReason.OUT_OF_MEMORY: ReasonFacts(Category.INFRASTRUCTURE, True, "The host ran out of memory."),
    EndReason.HANG: ReasonFacts(Category.INFRASTRUCTURE, True, "The program came no further within its limit."),
    EndReason.PEER_LOST: ReasonFacts(
        Category.INFRASTRUCTURE, True, "Another member of the gang died.", is_consequence=True
    ),
    EndReason.GANG_INCOMPLETE: ReasonFacts(
        Category.INFRASTRUCTURE, True, "Not every member of the gang came to its rendezvous.", is_of_gang=True
    ),
    EndReason.VERSIONS_DIFFER: ReasonFacts(
        Category.INFRASTRUCTURE, False, "The hosts of the gang have different versions installed.", is_of_gang=True
    ),
    EndReason.PROGRAMS_DIFFER: ReasonFacts(
        Category.USER, True, "The members of the gang ran different steps, or not equally many.", is_of_gang=True
    ),
    EndReason.DIVERGED: ReasonFacts(
        Category.USER, True, "Copies of a variable that must be equal were found to differ.", is_of_gang=True
    ),
    EndReason.LOST: ReasonFacts(
        Category.INFRASTRUCTURE,
        True,
        "The host fell silent for longer than the lease.",
        attempt_state=AttemptState.LOST,
    ),
    EndReason.HOST_REBOOTED: ReasonFacts(
        Category.INFRASTRUCTURE,
        True,
        "The host or its worker restarted without this run.",
        attempt_state=AttemptState.LOST,
    ),
    EndReason.START_FAILED: ReasonFacts(
        Category.INFRASTRUCTURE, True, "The worker could not start the program's process."
    ),
    EndReason.NOT_STARTED: ReasonFacts(
        Category.CONTROL_PLANE,
        True,
        "The server fell silent, or its worker had to register again, before the program was started.",
    ),
    EndReason.BUNDLE_UNAVAILABLE: ReasonFacts(
        Category.CONTROL_PLANE, True, "The bundle could not be fetched or its hash differs."
    ),
    EndReason.SPOOL_FULL: ReasonFacts(
        Category.INFRASTRUCTURE, False, "Results could not be kept: the host's spool is full."
    ),
    EndReason.NOT_CLAIMED: ReasonFacts(Category.CONTROL_PLANE, True, "Not every host claimed its part in time."),
    EndReason.QUEUE_LIMIT: ReasonFacts(Category.CAPACITY, False, "Waited longer than its queue limit."),
    EndReason.RUN_LIMIT: ReasonFacts(Category.POLICY, False, "Ran longer than its time limit."),
    EndReason.CANCELLED: ReasonFacts(
        Category.USER, False, "Stopped on request.", attempt_state=AttemptState.CANCELLED, is_consequence=True
    ),
    EndReason.PREEMPTED: ReasonFacts(
        Category.CAPACITY,
        True,
        "The host is draining; the run resumes elsewhere.",
        attempt_state=AttemptState.PREEMPTED,
    ),
    EndReason.POISON: ReasonFacts(
        Category.USER, False, "The run took down two hosts, or three attempts of the only one."
    ),
    EndReason.FENCED: ReasonFacts(Category.CONTROL_PLANE, True, "A newer attempt of the run exists."),
}

HOST_LOSSES = frozenset({EndReason.LOST, EndReason.HOST_REBOOTED, EndReason.SHIM_KILLED})
"""A run that ends like this took its host, or what drives it there, down with it; doing so again is POISON."""
HOST_FAULTS = frozenset(
    reason
    for reason, facts in REASONS.items()
    if facts.category is Category.INFRASTRUCTURE and not (facts.is_consequence or facts.is_of_gang)
)
"""What may be the host's fault; what a member ends of with its gang may be the fault of another's."""
