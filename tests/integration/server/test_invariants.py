"""Each invariant of `support.invariants`, broken in a database by SQL, is seen; none is where nothing is broken."""

import pytest
from sqlalchemy import text

from drumline.contracts.reasons import EndReason
from support import invariants
from support.core import Core
from support.facts import Facts, Reader, rows_of
from support.invariants import ALWAYS, AT_REST, ON_STEADY_CLOCKS, SINCE, Watch

LIVE = "(SELECT id FROM run WHERE state = 'RUNNING')"
ENDED = "(SELECT id FROM run WHERE state = 'SUCCEEDED')"
FAULTS = {
    "events_are_gapless": (f"DELETE FROM run_event WHERE run_id = {LIVE} AND seq = 2",),
    "one_live_attempt": (
        "DROP INDEX uq_attempt_live_run_id",
        f"UPDATE attempt SET state = 'RUNNING' WHERE run_id = {LIVE}",
    ),
    "fences_count_attempts": (f"UPDATE attempt SET fence = 3 WHERE run_id = {LIVE} AND fence = 2",),
    "holds_are_disjoint": ("DROP INDEX uq_hold_live_device_id", "UPDATE hold SET released_at = NULL"),
    "held_devices_have_a_live_holder": ("UPDATE hold SET released_at = held_at WHERE released_at IS NULL",),
    "devices_are_freed_on_proof_alone": ("UPDATE device SET state = 'FREE', attempt_id = NULL",),
    "live_runs_have_a_timer": ("UPDATE host SET lost_at = 1",),
    "budgets_are_kept": (f"UPDATE run SET user_failures = 7 WHERE id = {LIVE}",),
    "one_attempt_succeeds": (f"UPDATE attempt SET state = 'SUCCEEDED' WHERE run_id = {LIVE} AND fence = 1",),
    "telemetry_ends_with_its_member": ("UPDATE member SET acked_seq = last_seq + 1 WHERE last_seq IS NOT NULL",),
    "output_is_stored_once": ("UPDATE log_chunk SET next_byte = next_byte + 2",),
    "events_follow_the_transitions": (
        'UPDATE run_event SET body = \'{"state": "QUEUED"}\''
        f" WHERE kind = 'state' AND run_id = {ENDED} AND body LIKE '%SUCCEEDED%'",
    ),
    "states_are_as_events_tell": (f"UPDATE run SET state = 'CANCELLING' WHERE id = {LIVE}",),
    "fences_never_fall": (f"UPDATE run SET fence = 1 WHERE id = {LIVE}",),
    "telemetry_never_goes_back": ("UPDATE member SET acked_seq = acked_seq - 1 WHERE state = 'RUNNING'",),
    "ends_are_final": (f"UPDATE run SET result = NULL WHERE id = {ENDED}",),
    "attempts_follow_each_other": (f"UPDATE attempt SET ended_at = NULL WHERE run_id = {LIVE} AND fence = 1",),
    "holds_follow_each_other": ("UPDATE hold SET released_at = released_at + 3600000000",),
    "results_are_of_success": (f"UPDATE run SET state = 'FAILED' WHERE id = {ENDED}",),
    "every_end_was_heard": ("UPDATE member SET last_seq = acked_seq + 1 WHERE state = 'EXITED'",),
}
"""By the name of the invariant."""
FIRST_LOOK = {"events_follow_the_transitions"}
"""These see their fault in events that are new to them."""


@pytest.fixture
def world(core: Core) -> Core:
    """One run that succeeded, and one in its second attempt, on the device that both had before."""
    worker = core.add_worker(devices=1)
    for fails in (False, True):
        core.submit(resources={"replicas": 1}, retries={"user": 1})
        core.schedule()
        member = worker.take().start()
        for offset, printed in ((0, "one"), (3, "two")):
            member.send(member.event("log", stream="stdout", text=printed, offset=offset))
        if not fails:
            member.send(member.event("result", value={"accuracy": 0.5}))
        member.end(EndReason.PROGRAM_ERROR if fails else EndReason.COMPLETED)
        core.clock.advance(60)
        worker.beat()
        core.reap()
    core.schedule()
    worker.take().start()
    return core


def test_nothing_is_broken_in_what_the_server_wrote(world: Core) -> None:
    assert world.read(lambda session: invariants.breaches(session, *ON_STEADY_CLOCKS, *AT_REST)) == []


def test_every_invariant_has_a_fault() -> None:
    assert {each.__name__ for each in (*ALWAYS, *SINCE, *ON_STEADY_CLOCKS, *AT_REST)} == set(FAULTS)


@pytest.mark.parametrize("name", FAULTS)
def test_broken_invariant_is_seen(world: Core, name: str) -> None:
    watch = Watch()
    if name not in FIRST_LOOK:
        assert not [*watch.broken(_look(world, watch))]

    world.write(lambda session: [session.execute(text(fault)) for fault in FAULTS[name]] and None)
    facts = _look(world, watch)
    invariant = getattr(invariants, name)

    found = [*(invariant(facts, watch.seen) if invariant in SINCE else invariant(facts))]
    assert found, f"{name} is broken, and does not say so"
    assert invariant not in ALWAYS or set(found) <= {*watch.broken(facts)}


def _look(world: Core, watch: Watch) -> Facts:
    return world.read(lambda session: watch.look(Reader(rows_of(session))))
