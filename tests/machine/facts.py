"""What stands in the tables of one project, read in one snapshot."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from drumline_server.storage.models import Attempt, Device, Hold, Host, Member, Run, RunEvent


@dataclass(frozen=True)
class Facts:
    """Rows by id; holds that are open by device, of each member all; events in order."""

    runs: dict[str, Run]
    attempts: dict[str, Attempt]
    members: dict[str, Member]
    devices: dict[str, Device]
    hosts: dict[str, Host]
    holds: list[Hold]
    events: list[RunEvent]

    def parts_of(self, run_id: str) -> list[tuple[str, str, int, list[str]]]:
        """Members of the newest attempt by rank: id, host, rank, devices."""
        newest = self.runs[run_id].attempt_id
        members = sorted((row for row in self.members.values() if row.attempt_id == newest), key=lambda row: row.rank)
        return [
            (row.id, row.host_id, row.rank, [hold.device_id for hold in self.holds if hold.member_id == row.id])
            for row in members
        ]


def read_facts(session: Session, project_id: str) -> Facts:
    """Everything of the project."""

    def rows(table: Any) -> list[Any]:  # Any: an ORM class, and rows of it
        return list(session.scalars(select(table).where(table.project_id == project_id)))

    def by_id(table: Any) -> dict[str, Any]:
        return {row.id: row for row in rows(table)}

    events = sorted(rows(RunEvent), key=lambda event: (event.run_id, event.seq))
    tables = (by_id(Run), by_id(Attempt), by_id(Member), by_id(Device), by_id(Host))
    return Facts(*tables, rows(Hold), events)
