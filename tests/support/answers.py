"""Contract values as a server would answer them, for tests of the client."""

import json
from datetime import UTC, datetime
from typing import Any

from drumline.contracts import api
from drumline.contracts.spec import CheckpointSpec, Limits, MirroredSpec, ProgramRef, RecordSpec, Resources, Retries

PLAN_ID = "pln_01JD0000000000000000000000"
RUN_ID = "run_01JD0000000000000000000000"
ATTEMPT_ID = "att_01JD0000000000000000000000"
SECOND_ATTEMPT_ID = "att_01JD0000000000000000000001"
MEMBER_ID = "mem_01JD0000000000000000000000"
HOST_ID = "hst_01JD0000000000000000000000"
PROJECT_ID = "prj_01JD0000000000000000000000"
SHA = "sha256:" + "0" * 64
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def job_version() -> api.JobVersion:
    """Version 1 of the job `digits`."""
    return api.JobVersion(
        id="ver_01JD0000000000000000000000",
        job="digits",
        number=1,
        content_hash=SHA,
        program=ProgramRef(bundle=SHA, entrypoint="digits:main"),
        strategy=MirroredSpec(),
        record=RecordSpec(),
        checkpoint=CheckpointSpec(),
        created_at=NOW,
        runs=1,
    )


def run(state: str = "RUNNING", **changes: Any) -> api.Run:
    """A run of `digits` on 8 replicas."""
    fields: dict[str, Any] = {
        "id": RUN_ID,
        "project": PROJECT_ID,
        "job": "digits",
        "version": 1,
        "state": state,
        "reason": None,
        "strategy": "mirrored",
        "replicas": 8,
        "platform": "any",
        "priority": 0,
        "labels": {},
        "progress": {},
        "attempts": 1,
        "created_at": NOW,
        "started_at": NOW,
        "ended_at": NOW if state in ("SUCCEEDED", "FAILED", "CANCELLED") else None,
        "cancel_requested": False,
        "hosts": ["box"],
        "spec": job_version(),
        "parameters": {},
        "resources": Resources(replicas=8),
        "limits": Limits(),
        "retries": Retries(),
        "wait_for_devices": False,
        "why": None,
        "result": None,
        "last_event": 0,
    }
    return api.Run.model_validate(fields | changes)


def failed(message: str = "ValueError: bad rate") -> api.Run:
    """A run whose program raised."""
    reason = api.Reason(
        code="PROGRAM_ERROR",
        category="user",
        retryable=True,
        sentence="The program raised an exception; the log has the traceback.",
        message=message,
    )
    return run("FAILED", reason=reason, last_event=9)


def event(seq: int, kind: str = "progress", attempt: str | None = ATTEMPT_ID, **body: Any) -> bytes:
    """One event of the stream, as bytes."""
    content = {"run": RUN_ID, "seq": seq, "at": NOW.isoformat(), "kind": kind, "attempt": attempt, "body": body}
    return f"event: run\nid: {RUN_ID}={seq}\ndata: {json.dumps(content)}\n\n".encode()


def end(seq: int, state: str = "SUCCEEDED") -> bytes:
    """The terminal event."""
    return event(seq, "state", state=state, terminal=True)


def logs(text: str, first: int, end_byte: int, attempt: str = ATTEMPT_ID) -> api.Logs:
    """Output from byte `first` on, of `end_byte` bytes in all."""
    size = len(text.encode())
    segments = (api.LogSegment(stream="stdout", at=NOW, first_byte=first, first_line=1, text=text),) if text else ()
    return api.Logs(
        run=RUN_ID,
        attempt=attempt,
        member=MEMBER_ID,
        segments=segments,
        first_byte=first,
        next_byte=first + size,
        end_byte=end_byte,
        lines=0,
        complete=False,
    )


def plan(state: str = "none", **probe: Any) -> api.Plan:
    """A plan of `digits` on two devices of `box`, for which it would wait."""
    devices = [
        {
            "device": f"dev_01JD000000000000000000000{index}",
            "host": HOST_ID,
            "host_name": "box",
            "platform": "cpu",
            "index": index,
            "kind": "cpu",
            "memory_bytes": None,
            "coords": None,
            "core_on_chip": None,
            "simulated": True,
            "replica": index,
            "logical": 0,
        }
        for index in range(2)
    ]
    return api.Plan.model_validate(
        {
            "id": PLAN_ID,
            "created_at": NOW,
            "request": {
                "job": {"name": "digits", "program": {"bundle": SHA, "entrypoint": "digits:main"}},
                "resources": {"replicas": 2},
            },
            "starts_now": False,
            "why": {"rule": "devices_busy", "sentence": "Needs 2 devices on one host; box has 1 free."},
            "devices": devices,
            "warnings": (),
            "probe": {"state": state, "host_name": "box", **probe},
            "program": None,
        }
    )


def batch(**states: int) -> api.Batch:
    """A batch whose runs are in these states."""
    return api.Batch.model_validate(
        {
            "id": "bat_01JD0000000000000000000000", "project": PROJECT_ID, "name": "", "jobs": ["digits"],
            "size": sum(states.values()), "states": states, "sweep": None, "submitted_by": "me", "created_at": NOW,
        }
    )  # fmt: skip
