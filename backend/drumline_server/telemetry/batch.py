"""Where the events of one batch belong."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from drumline.contracts.events import GapEvent
from drumline_server.models import Attempt, Member, Run
from drumline_server.run_events import record_event


@dataclass(frozen=True, slots=True)
class Batch:
    """A transaction that stores telemetry of one member; the run is locked."""

    session: Session
    run: Run
    attempt: Attempt
    member: Member
    now: int
    causes: Sequence[GapEvent] = ()
    """Gaps in the batch, in their order: they may say why output is lost."""

    @property
    def owner(self) -> dict[str, str]:
        """The columns that say whose a row of telemetry is."""
        return {
            "member_id": self.member.id,
            "attempt_id": self.attempt.id,
            "run_id": self.run.id,
            "project_id": self.run.project_id,
        }

    def record(self, kind: str, body: Mapping[str, Any]) -> None:  # Any: compact JSON of the kind
        """Adds the one event that tells the stream about all of this kind in the batch."""
        record_event(self.session, self.run.id, kind, body, now=self.now, attempt_id=self.attempt.id)
