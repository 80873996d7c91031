"""What the users' programs do: how long they take, how they end, whether they heed a request to stop."""

import random
import signal
from dataclasses import dataclass
from functools import partial

from drumline.contracts.reasons import EndReason

ENDLESS = 1000
"""Runs with such a number and above go on until somebody stops them."""
_FOR_EVER_S = 1e9


@dataclass(frozen=True, slots=True)
class Program:
    """One process of one attempt. Times in seconds of its own running."""

    load_s: float
    """Until the step loop begins."""
    run_s: float
    """From then on."""
    exit_code: int = 0
    signal: int = 0
    fails_with: EndReason | None = None
    """What the runner says of itself before it exits with code 1."""
    heeds_request_s: float | None = 0.5
    """How long after being asked it stops; None if it never looks."""
    heeds_term: bool = True
    leaves_orphans: bool = False
    """Whether something that it started cannot be killed."""

    @property
    def succeeds(self) -> bool:
        """Whether it comes to return its result."""
        return self.exit_code == 0 and self.signal == 0


def program_of(seed: int, run: int, attempt: int, rank: int) -> Program:
    """The program that a history's n-th run executes in that attempt."""
    rng = random.Random(f"{seed}/{run}/{attempt}/{rank}")
    load_s, run_s = rng.uniform(0.2, 3.0), rng.choice((rng.uniform(0.5, 10.0), rng.uniform(15.0, 60.0)))
    fate = rng.random()
    heeds = rng.uniform(0.05, 2.0) if rng.random() < 0.7 else None
    if run >= ENDLESS:
        run_s = _FOR_EVER_S
    make = partial(
        Program, load_s, heeds_request_s=heeds, heeds_term=rng.random() < 0.8, leaves_orphans=rng.random() < 0.15
    )
    if fate < 0.72:
        return make(run_s)
    run_s = min(run_s, 60.0) * rng.random()
    if fate < 0.82:
        return make(run_s, exit_code=1, fails_with=EndReason.PROGRAM_ERROR)
    if fate < 0.88:
        return make(run_s, signal=signal.SIGSEGV)
    if fate < 0.94:
        return make(run_s, exit_code=3)
    return make(run_s, signal=signal.SIGKILL)
