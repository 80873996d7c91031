"""What stands in the tables of a database, read by plain SQL: no fault in our models hides one in the tables."""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

from sqlalchemy import text
from sqlalchemy.orm import Session

from drumline.contracts.states import TERMINAL_ATTEMPT

Rows = Callable[[str, Mapping[str, object]], Iterable[Sequence[Any]]]
"""Runs a query with named parameters, `:name`, and returns its rows. Any: the values of columns."""


class RunRow(NamedTuple):
    """Columns of `run`; `retries` and `result` are JSON."""

    id: str
    state: str
    fence: int
    attempt_id: str | None
    event_seq: int
    retry_at: int | None
    retries: str
    result: str | None
    attempts: int
    user_failures: int
    infrastructure_failures: int
    stop_reason: str | None


class AttemptRow(NamedTuple):
    """Columns of `attempt`."""

    id: str
    run_id: str
    state: str
    fence: int
    reason_code: str | None
    claim_deadline: int
    finishing_at: int | None
    created_at: int
    ended_at: int | None

    @property
    def is_live(self) -> bool:
        """Whether it may still have devices."""
        return self.state not in TERMINAL_ATTEMPT


class MemberRow(NamedTuple):
    """Columns of `member`, and whether somebody waits for a sign of life of its host."""

    id: str
    attempt_id: str
    host_id: str
    rank: int
    state: str
    fence: int
    incarnation_id: str | None
    reason_code: str | None
    acked_seq: int
    last_seq: int | None
    has_lease: bool


class DeviceRow(NamedTuple):
    """Columns of `device`."""

    id: str
    state: str
    attempt_id: str | None
    fence: int


class HoldRow(NamedTuple):
    """Columns of `hold`."""

    device_id: str
    attempt_id: str
    member_id: str
    held_at: int
    released_at: int | None


class Event(NamedTuple):
    """Columns of `run_event`; `body` is parsed."""

    run_id: str
    seq: int
    kind: str
    body: Mapping[str, Any]


class StoredEvents(NamedTuple):
    """How many events a run has, and the number of its newest."""

    run_id: str
    stored: int
    newest: int


class Overlap(NamedTuple):
    """Bytes of a member's output that two chunks hold."""

    member_id: str
    first_byte: int
    end_byte: int


@dataclass(frozen=True)
class Facts:
    """Rows by id, of one snapshot; `events` are those that are new since the last look, by run in order.

    A deleted run is not among them, whatever of it is left: it may be half erased.
    """

    runs: dict[str, RunRow]
    attempts: dict[str, AttemptRow]
    members: dict[str, MemberRow]
    devices: dict[str, DeviceRow]
    holds: list[HoldRow]
    events: list[Event]
    stored_events: list[StoredEvents]
    overlaps: list[Overlap]
    deleted: Collection[str]
    """Ids of runs that the audit log tells as deleted."""

    @cached_property
    def attempts_of(self) -> Mapping[str, list[AttemptRow]]:
        """By run, in the order of their fences."""
        found: defaultdict[str, list[AttemptRow]] = defaultdict(list)
        for attempt in sorted(self.attempts.values(), key=lambda row: row.fence):
            found[attempt.run_id].append(attempt)
        return found

    @cached_property
    def members_of(self) -> Mapping[str, list[MemberRow]]:
        """By attempt."""
        found: defaultdict[str, list[MemberRow]] = defaultdict(list)
        for member in self.members.values():
            found[member.attempt_id].append(member)
        return found

    @cached_property
    def open_holds(self) -> list[HoldRow]:
        """Those that are not released."""
        return [hold for hold in self.holds if hold.released_at is None]


_MEMBER = ", ".join(f"t.{name}" for name in MemberRow._fields[:-1]) + (
    ", CASE t.incarnation_id WHEN h.incarnation_id THEN h.last_heartbeat_at IS NOT NULL AND h.lost_at IS NULL"
    " ELSE (SELECT i.last_heartbeat_at FROM incarnation i WHERE i.id = t.incarnation_id) IS NOT NULL END"
)
_EVENTS = "SELECT run_id, seq, kind, body FROM run_event WHERE run_id = :run AND seq > :known ORDER BY seq"
_SEEN = {
    "run": "t.deleted_at IS NULL",
    **dict.fromkeys(("attempt", "member", "hold"), "t.run_id NOT IN (SELECT id FROM run WHERE deleted_at IS NOT NULL)"),
}
"""Of tables: which rows are of a run that is seen."""
_OVERLAPS = (
    "log_chunk t JOIN log_chunk later ON later.member_id = t.member_id"
    " AND later.first_byte > t.first_byte AND later.first_byte < t.next_byte"
)


@dataclass(frozen=True)
class Reader:
    """Reads by `rows`. `project_id`: one project alone."""

    rows: Rows
    project_id: str | None = None

    def read(self, known: Mapping[str, int]) -> Facts:
        """What is there now; of events those after the number that is `known` of a run."""
        runs: dict[str, RunRow] = self._by_id(RunRow, "run t")
        return Facts(
            runs,
            self._by_id(AttemptRow, "attempt t"),
            self._by_id(MemberRow, "member t JOIN host h ON h.id = t.host_id", _MEMBER),
            self._by_id(DeviceRow, "device t"),
            list(self._each(HoldRow, "hold t")),
            [event for run in runs.values() for event in self._new_events(run, known.get(run.id, 0))],
            list(self._each(StoredEvents, "run_event t", "t.run_id, COUNT(*), MAX(t.seq)", " GROUP BY t.run_id")),
            list(self._each(Overlap, _OVERLAPS, "t.member_id, later.first_byte, t.next_byte")),
            {row[0] for row in self.rows("SELECT target FROM audit WHERE action = 'run.delete'", {})},
        )

    def _by_id(self, row: Any, table: str, columns: str = "") -> dict[str, Any]:  # Any: a row's class, and rows of it
        return {each.id: each for each in self._each(row, table, columns)}

    def _each(self, row: Any, table: str, columns: str = "", suffix: str = "") -> Iterator[Any]:
        query = _query(columns or row._fields, table, suffix, of_project=self.project_id is not None)
        return map(row._make, self.rows(query, {"project": self.project_id} if self.project_id else {}))

    def _new_events(self, run: RunRow, known: int) -> Iterator[Event]:
        if run.event_seq > known:
            for run_id, seq, kind, body in self.rows(_EVENTS, {"run": run.id, "known": known}):
                yield Event(run_id, seq, kind, json.loads(body))


@cache
def _query(columns: str | tuple[str, ...], table: str, suffix: str, *, of_project: bool) -> str:
    named = columns if isinstance(columns, str) else ", ".join(f"t.{name}" for name in columns)
    wanted = ["t.project_id = :project"] if of_project else []
    wanted += [seen for name, seen in _SEEN.items() if table.startswith(f"{name} t")]
    where = f" WHERE {' AND '.join(wanted)}" if wanted else ""
    return f"SELECT {named} FROM {table}{where}{suffix}"


def rows_of(session: Session) -> Rows:
    """Queries in the transaction of `session`."""
    return lambda query, values: session.execute(text(query), dict(values)).all()
