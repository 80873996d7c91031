"""Who of a gang comes last to its collectives, and what that costs."""

from typing import Literal

from drumline.contracts.base import AttemptId, HostId, Reply, RunId


class ArrivalTimes(Reply):
    """What a step of one member is made of, in milliseconds, on its own clock.

    In one step they add up: arrival is input, own code and dispatch; then the member waits, then the devices work.
    """

    arrival_ms: float
    """From the end of one collective until it came to the next."""
    input_ms: float
    own_code_ms: float
    dispatch_ms: float
    wait_ms: float
    """From there until the last member came; 0 for that one."""
    devices_ms: float
    """What is left, the same for all: from the last arrival to the end of the collective."""


class MemberArrival(Reply):
    """One member; the times are None before anything was compared."""

    rank: int
    host: HostId
    host_name: str
    arrived_last: int
    """In how many of the compared steps."""
    latest: ArrivalTimes | None = None
    median: ArrivalTimes | None = None
    """Of each time by itself, over the compared steps."""


class Straggler(Reply):
    """The member that the others wait for: it came last in four of five compared steps, and costs 10 % or more."""

    rank: int
    host_name: str
    gain_percent: float
    """Of the step's time; the run would gain at most so much if it came when the last of the others does."""
    gain_ms: float
    step_ms: float
    error_ms: float
    """By how much the members' clocks disagree on how long the same step took."""
    arrived_last: int
    compared: int


class Arrivals(Reply):
    """A page of the members of an attempt, by rank, over its last compared steps: at most 32, of a large gang 8.

    Up to an earlier call at most 8.
    """

    run: RunId
    attempt: AttemptId | None
    executor: str | None
    unmeasured: Literal["executor", "nothing_told"] | None
    """Why no member has times. "executor": one process starts all replicas together. "nothing_told": not yet."""
    compared: int
    """Steps that every member measured."""
    call: int | None = None
    """The newest of them, as a call of `strategy.run`."""
    calls: tuple[int, ...] = ()
    """All that can be asked for: the newest, and of those before fewer and fewer, 128 at most."""
    step_ms: float | None = None
    error_ms: float | None = None
    straggler: Straggler | None = None
    members: tuple[MemberArrival, ...]
    next: str | None = None
    """The cursor of the following page, None on the last."""
