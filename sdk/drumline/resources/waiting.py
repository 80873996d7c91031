"""Asking the server again and again until something is over, also across a restart of it."""

from collections.abc import Callable
from typing import NamedTuple

from drumline import errors
from drumline._transport import TIMEOUT_S, Transport
from drumline.contracts.problems import ProblemCode
from drumline.resources.run_events import GIVE_UP_S

LEAST_LOOK_S = 1.0
"""One look may take so long even where less is left: an answer that is under way is worth more than a round number."""


class Pauses(NamedTuple):
    """Seconds between two looks: at first, and at last."""

    first_s: float
    last_s: float


def wait_until(
    transport: Transport,
    is_over: Callable[[float], bool],
    *,
    timeout: float | None,
    pauses: Pauses,
    still: Callable[[], str],
) -> None:
    """Asks `is_over` until it says so; it is given the seconds that one question may take.

    A server that is away for less than two minutes, as during a restart, is asked again. Raises WaitTimeoutError with
    what `still` says after `timeout` seconds, ServerUnreachableError or ServerError after two minutes without an
    answer, and whatever else `is_over` raises at once.
    """
    check_timeout(timeout)
    began = heard_at = transport.clock()
    pause, trouble = pauses.first_s, ""
    while True:
        try:
            if is_over(_look_s(timeout, transport.clock() - began)):
                return
            heard_at, trouble = transport.clock(), ""
        except (errors.ServerUnreachableError, errors.RateLimitedError, errors.ServerError) as error:
            if not _may_pass(error) or transport.clock() - heard_at > GIVE_UP_S:
                raise
            trouble = f"; when last asked, {error}"
        left = pause if timeout is None else timeout - (transport.clock() - began)
        if left <= 0:
            raise errors.WaitTimeoutError(f"{still()} after {timeout:g} s{trouble}")
        transport.sleep(min(left, pause))
        pause = min(pauses.last_s, 1.5 * pause)


def check_timeout(timeout: float | None) -> None:
    """Raises OptionError for what is no number of seconds."""
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if timeout is not None and not (is_number and timeout >= 0):
        message = f"timeout={timeout!r} is no number of seconds; pass 60 or more as you like, or None to wait for ever"
        raise errors.OptionError(ProblemCode.BAD_PARAMETER, message, "timeout")


def _look_s(timeout: float | None, passed_s: float) -> float:
    return TIMEOUT_S if timeout is None else min(TIMEOUT_S, max(LEAST_LOOK_S, timeout - passed_s))


def _may_pass(error: errors.DrumlineError) -> bool:
    """A success that cannot be read stays one that cannot be read."""
    return not isinstance(error, errors.ServerError) or error.status >= 500
