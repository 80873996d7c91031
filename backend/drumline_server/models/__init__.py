"""The tables. Times are int64 microseconds UTC, ids are prefixed and sortable, every row has a project."""

from drumline_server.models.access import BrowserSession, LoginCode, Project, Token
from drumline_server.models.attempt import WAITING, Attempt, Member
from drumline_server.models.audit import Audit
from drumline_server.models.base import Base, table_of
from drumline_server.models.batch import Batch
from drumline_server.models.fleet import Device, Hold, Host, Incarnation
from drumline_server.models.idempotency import IdempotencyKey
from drumline_server.models.job import Bundle, Job, JobChange, JobVersion
from drumline_server.models.lease import Lease, ServerProcess
from drumline_server.models.plan import Plan
from drumline_server.models.run import Run, RunLabel
from drumline_server.models.run_event import RunEvent
from drumline_server.models.store import Store
from drumline_server.models.telemetry import (
    Checkpoint,
    Gap,
    LogChunk,
    Metric,
    MetricChunk,
    MetricPage,
    PlacementRecord,
    Reduction,
    ReductionKind,
    VariableRecord,
)

__all__ = [
    "WAITING",
    "Attempt",
    "Audit",
    "Base",
    "Batch",
    "BrowserSession",
    "Bundle",
    "Checkpoint",
    "Device",
    "Gap",
    "Hold",
    "Host",
    "IdempotencyKey",
    "Incarnation",
    "Job",
    "JobChange",
    "JobVersion",
    "Lease",
    "LogChunk",
    "LoginCode",
    "Member",
    "Metric",
    "MetricChunk",
    "MetricPage",
    "PlacementRecord",
    "Plan",
    "Project",
    "Reduction",
    "ReductionKind",
    "Run",
    "RunEvent",
    "RunLabel",
    "ServerProcess",
    "Store",
    "Token",
    "VariableRecord",
    "table_of",
]
