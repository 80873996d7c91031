"""Safeguards, each switched off by a named mutant: a simulator that does not notice is blind.

A mutant patches the real code from outside, for the time of one history. `catches` in the table is what breaks then.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from sqlalchemy.orm.attributes import set_committed_value

from drumline.contracts.base import to_micros
from drumline.contracts.states import ATTEMPT_TRANSITIONS, AttemptState
from drumline.contracts.worker_api import Register
from drumline_server.lifecycle import aftermath, deadlines, finish, guard, heartbeat, members, registration, transitions
from drumline_server.lifecycle.registration import RegistrationKind
from drumline_server.scheduling import dispatch, loops
from drumline_server.services import submit
from drumline_server.storage.models import Attempt, Incarnation, Member
from drumline_server.storage.notifications import notify
from drumline_server.telemetry import ingest
from drumline_worker.agent import registration as agent_registration
from drumline_worker.agent.registration import Registration
from drumline_worker.host.system import boottime
from drumline_worker.shim.stopping import Action, Stopper
from sim import agent, shim

Patch = tuple[Any, str, Any]  # Any: modules and classes, and what stands in for the real thing


@dataclass(frozen=True, slots=True)
class Mutant:
    """A safeguard that is off, and what stands for it."""

    name: str
    safeguard: str
    patches: tuple[Patch, ...]

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """The safeguard is off inside."""
        with contextlib.ExitStack() as stack:
            for target, name, stand_in in self.patches:
                stack.enter_context(patch.object(target, name, stand_in))
            yield


def _new_to_all(_: object, requests: Sequence[object], **__: object) -> list[None]:
    return [None] * len(requests)


def _never(*_: object) -> None:
    return None


def _not_ahead(*_: object) -> bool:
    return False


def _nothing(*_: object, **__: object) -> list[Any]:
    return []


def _off(name: str, safeguard: str, *patches: Patch) -> Mutant:
    return Mutant(name, safeguard, patches)


# what stands in for the real thing


class _EarlyDeadlines(deadlines.Deadlines):
    """Takes over after half of the time that the workers were told."""

    def __init__(
        self, takeover_s: float, suspect_s: float, leases_from: int, stalled_us: int = 0, scale: float = 1.0
    ) -> None:
        super().__init__(takeover_s / 2, suspect_s, leases_from, stalled_us, scale)


class _UnmovedDeadlines(deadlines.Deadlines):
    """Forgets that the clock has jumped."""

    def __init__(
        self, takeover_s: float, suspect_s: float, leases_from: int, stalled_us: int = 0, scale: float = 1.0
    ) -> None:
        del leases_from
        super().__init__(takeover_s, suspect_s, 0, stalled_us, scale)


_WAITING = AttemptState.DISPATCHED
_real_pending = Stopper._list_pending
_real_acknowledged = Registration._record_ack
_real_heartbeat = Registration._heartbeat
_real_notify = Registration.notify
_real_lose_member = finish.mark_member_lost
_real_renew = heartbeat._renew
_real_end_member = finish.end_member
_real_retry_or_fail = aftermath.retry_or_fail
_real_add_attempt = dispatch._add_attempt
_real_abandon = aftermath.end_unstarted_attempt
_real_store_batch = ingest.store_batch


def _pending_without_lease(self: Stopper) -> list[Any]:
    lease, self._alive_at = self._alive_at, float("inf")
    try:
        return [step for step in _real_pending(self) if step.at != float("inf")]
    finally:
        self._alive_at = lease


def _never_kill(self: Stopper) -> list[Any]:
    return [step for step in _real_pending(self) if step.action is not Action.KILL]


def _acknowledged_now(self: Registration, sent_at: float, members: Any) -> None:
    del sent_at
    _real_acknowledged(self, boottime(), members)


def _lose_as_if_dead(*arguments: Any, proven_dead: bool, **more: Any) -> None:
    del proven_dead
    _real_lose_member(*arguments, proven_dead=True, **more)


def _renew_by_its_clock(session: Any, beats: Any, now: int) -> int:
    del now
    return sum(_real_renew(session, [(status, beat)], to_micros(beat.sent_at)) for status, beat in beats)


def _end_as_if_dead(session: Any, host_id: str, member_id: str, end: Any, *, key: Any, now: int) -> Any:
    dead = end.model_copy(update={"devices_released": True})
    return _real_end_member(session, host_id, member_id, dead, key=key, now=now)


def _retry_for_ever(session: Any, run: Any, reason: Any, message: str, *, now: int) -> None:
    set_committed_value(run, "retries", {"user": 100, "infrastructure": 100})
    _real_retry_or_fail(session, run, reason, message, now=now)


def _add_attempt_without_fence(session: Any, run: Any, **more: Any) -> Attempt:
    run.fence = max(0, run.fence - 1)
    return _real_add_attempt(session, run, **more)


def _abandon_without_fencing(session: Any, attempt: Attempt, to: Any, reason: Any, *, now: int) -> None:
    with patch.object(aftermath, "transition_member", lambda *_, **__: True):
        _real_abandon(session, attempt, to, reason, now=now)


def _store_again(session: Any, host_id: str, member_id: str, batch: Any, *, key: Any, now: int) -> Any:
    row = session.get_one(Member, member_id)
    row.acked_seq = min(row.acked_seq, batch.first_seq - 1)
    session.flush()
    return _real_store_batch(session, host_id, member_id, batch, key=key, now=now)


def _any_incarnation(session: Any, host_id: str, incarnation: str) -> Any:
    del incarnation
    return guard.require_host(session, host_id)


async def _proof_invented(*_: object) -> bool:
    return True


def _no_members(*_: object) -> Iterator[Any]:
    return iter(())


def _keep_all(session: Any, host_row: Any) -> list[str]:
    del session, host_row
    return []


def _adopt_none(*_: object, **__: object) -> set[str]:
    return set()


def _never_moved(older: Incarnation | None, body: Register) -> RegistrationKind:
    same_boot = older is None or older.boot_id == body.boot_id
    return RegistrationKind.RESTART if same_boot else RegistrationKind.REBOOT


def _no_stop(*_: object) -> bool:
    return False


def _notify_before_the_commit(session: Any, host_id: str) -> None:
    session.info["server"].publish(host_id)
    notify(session, host_id)


def _beat_for_known_members(self: Registration, members: Any) -> Any:
    self.__dict__["population"] = members
    return _real_heartbeat(self, members)


def _trust(self: Registration) -> None:
    if "population" in self.__dict__:
        self._record_ack(boottime(), self.__dict__["population"])
    _real_notify(self)


def _acknowledge_quietly(held: Any) -> Any:
    return guard.acknowledge(held).model_copy(update={"cancel": False})


MUTANTS = (
    _off("takeover_too_early", "P6: takeover only after T", (loops, "Deadlines", _EarlyDeadlines)),
    _off("no_self_fencing", "P6: the shim kills at T-10 s", (Stopper, "_list_pending", _pending_without_lease)),
    _off(
        "lease_from_the_answer",
        "P6: the lease counts from the sending",
        (Registration, "_record_ack", _acknowledged_now),
    ),
    _off("clock_jumps_trusted", "P8: no lease ends for T after a jump", (loops, "Deadlines", _UnmovedDeadlines)),
    _off("worker_clock_trusted", "P8: server time only", (heartbeat, "_renew", _renew_by_its_clock)),
    _off("set_back_clock_ignored", "P8: far-off timers are pulled back", (loops, "clamp_timestamps", _nothing)),
    _off(
        "freed_without_proof",
        "P10: no device is free without proof of death",
        (finish, "mark_member_lost", _lose_as_if_dead),
    ),
    _off("unproven_end_believed", "P10: an end says whether all is dead", (finish, "end_member", _end_as_if_dead)),
    _off(
        "proof_invented",
        "P10: only the launcher proves a shim's death",
        (agent.SimLauncher, "wait_gone", _proof_invented),
    ),
    _off("no_idempotency", "P2: same key, same run", (submit, "replays", _new_to_all)),
    _off("notifications_not_answered", "P3: a notification brings a heartbeat", (Registration, "notify", _never)),
    _off("notifications_flood", "P3: one early heartbeat a second", (agent_registration, "EARLY_HEARTBEAT_S", 0.0)),
    _off(
        "notification_trusted",
        "P3: a notification is no sign of the server's life",
        (Registration, "_heartbeat", _beat_for_known_members),
        (Registration, "notify", _trust),
    ),
    _off(
        "notified_before_the_commit",
        "P3: published after the commit",
        *((module, "notify", _notify_before_the_commit) for module in (dispatch, finish, aftermath)),
    ),
    _off("claims_never_expire", "P4: what nobody claims expires", (deadlines, "_unclaimed_attempts", _nothing)),
    _off("leases_never_expire", "P6: a silent host is lost", (deadlines, "_lost_hosts", _nothing)),
    _off("drains_never_end", "P11: a drain has a limit", (deadlines, "_attempts_past_drain_timeout", _nothing)),
    _off("backoffs_never_end", "P14: a backoff ends", (deadlines, "_runs_with_elapsed_backoff", _nothing)),
    _off("run_limit_off", "limits.run_s is enforced", (deadlines, "_runs_over_limit", _nothing)),
    _off("server_adopts_nobody", "P7: listed members are bound again", (registration, "_adopt_members", _adopt_none)),
    _off("agent_adopts_nobody", "P9: a restarted agent adopts", (agent, "find_members", _no_members)),
    _off("late_registration_taken", "P7: a late registration is refused", (registration, "_require_order", _nothing)),
    _off("missing_members_kept", "P7: members not listed are lost", (registration, "_started_members", _keep_all)),
    _off(
        "any_incarnation",
        "P7: only the newest incarnation is heard",
        *((module, "require_incarnation", _any_incarnation) for module in (members, finish, heartbeat, ingest)),
    ),
    _off(
        "move_taken_for_restart",
        "P7: a moved identity proves nothing",
        (registration, "registration_kind", _never_moved),
    ),
    _off(
        "left_behind_for_ever",
        "P7: what a move left behind has a lease",
        (deadlines, "_superseded_incarnations", _nothing),
    ),
    _off(
        "left_behind_taken_over",
        "P7: what a move left behind is nobody's",
        *((module, "require_same_incarnation", _nothing) for module in (members, finish, ingest)),
    ),
    _off(
        "cancels_not_delivered",
        "P17: a cancel reaches the program",
        (heartbeat, "_is_to_stop", _no_stop),
        (finish, "acknowledge", _acknowledge_quietly),
        (ingest, "acknowledge", _acknowledge_quietly),
    ),
    _off("no_kill_after_term", "P17: KILL follows TERM", (Stopper, "_list_pending", _never_kill)),
    _off("no_retry_budget", "P14: retries are counted", (aftermath, "retry_or_fail", _retry_for_ever)),
    _off(
        "fence_not_raised", "P5: each attempt raises the fence", (dispatch, "_add_attempt", _add_attempt_without_fence)
    ),
    _off(
        "expired_is_claimable",
        "P4: an expired attempt is fenced off",
        (aftermath, "end_unstarted_attempt", _abandon_without_fencing),
    ),
    _off("telemetry_stored_twice", "P11: each event once", (ingest, "store_batch", _store_again)),
    _off("ends_undrained", "P11: an attempt ends when drained", (finish, "_is_drained", lambda _: True)),
)

RARE = (
    _off(
        "half_claimed_not_preempted",
        "P4: a half-claimed gang can be preempted",
        (
            transitions,
            "ATTEMPT_TRANSITIONS",
            {**ATTEMPT_TRANSITIONS, _WAITING: ATTEMPT_TRANSITIONS[_WAITING] - {AttemptState.PREEMPTED}},
        ),
    ),
    _off(
        "renewed_though_the_clock_is_behind",
        "P8: no lease is renewed to an earlier time",
        (guard, "is_from_the_future", _not_ahead),
        (heartbeat, "is_from_the_future", _not_ahead),
    ),
    _off("lease_not_looked_at_before_the_start", "P6: no start after the lease", (shim, "too_late", _never)),
)
"""Mends taken away again that too few seeds meet: only the histories in `regressions` notice."""
