"""Runs with something of all that is stored of a run, deleted and erased on a `Core`."""

from functools import partial
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline_server.lifecycle.deletion import deleted_runs, erase_part, pointing_at
from drumline_server.services import run_changes
from drumline_server.storage.models import Member, Run
from support.core import TESTER, Core, Worker
from support.run_lists import spread_fields

_MANY = 130
"""Steps, lines and reductions: more than one part of an erasure takes."""


def ended_run(core: Core, worker: Worker, **changes: Any) -> str:
    """A run that logged something of every kind, and has ended."""
    core.submit(**{"resources": {"replicas": 1}, "labels": {"kind": "whole"}, **changes})
    core.schedule()
    member = worker.take().start()
    devices = [each.device for each in member.claimed.devices]
    point = {"shape": [1], "dtype": "float32", "values": [1.0]}
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("placement", {"strategy": "mirrored", "executor": "spmd", "replicas": [{"replica": 0, "devices": devices}]}),
        ("variable", {"name": "w", "shape": [1], "dtype": "float32", "homes": devices, "size_bytes": 4}),
        ("gap", {"what": "metrics", "count": 1}),
        ("time", {"begin_us": 0, "end_us": 1_000_000, "spent_us": {"steps": 1_000_000}}),
        ("checkpoint", {"step": 1, "path": "f1/step_1", "size_bytes": 10, "manifest": "sha256:1"}),
    ]
    kinds[1][1].update(synchronization="auto", aggregation="none")
    nan = {"replicas": [{"replica": 0, "nan_count": 1, "inf_count": 0}], "result_count": 1}
    kinds.append(("non_finite", {"name": "w", "step": 1, "call": 1, "op": "sum", "shape": [1], **nan}))
    arrived = dict.fromkeys(("input_us", "own_code_us", "dispatch_us", "rest_us"), 1)
    kinds.append(("arrivals", {"samples": [{"call": 1, "points": [arrived]}]}))
    kinds.append(("media", {"name": "note", "step": 1, "value": {"kind": "text", "text": "warm-up"}}))
    kinds.append(("profile", {"step": 1, "call": 1}))
    kept = {"name": "weights", "size_bytes": 1, "sha256": f"sha256:{0:064x}"}
    kinds.append(("artifact", {"artifact": kept}))
    for step in range(_MANY):
        row = {"names": ["loss"] * 64, "steps": [*range(64 * step, 64 * step + 64)], "values": [0.5] * 64}
        kinds.append(("metrics", {**row, "times": [core.clock.now()] * 64}))
        kinds.append(("log", {"stream": "stdout", "text": "a line\n", "offset": 7 * step}))
        summed = {"op": "sum", "inputs": [point], "counts": [1], "result": point}
        kinds.append(("reduction", {"name": "w", "step": step, "call": step, **summed}))
    kinds.append(("result", {"value": {"loss": 0.5}}))
    member.send(*(member.event(kind, **fields) for kind, fields in kinds))
    core.clock.advance(1)
    member.end()
    spread_fields(core)
    return member.claimed.run


def delete(core: Core, run_id: str, why: str = "") -> api.DeletedRun:
    """Deletes a run, in the name of the tester."""
    return core.write(
        lambda session: run_changes.delete_run(session, core.project_id, run_id, why, by=TESTER, now=core.clock.now())
    )


def erase(core: Core, most: int = 1_000) -> int:
    """Up to `most` parts of what is left of deleted runs; how many there were."""
    parts = 0
    while parts < most and (numbers := core.read(deleted_runs)):
        core.write(partial(erase_part, number=numbers[0]))
        parts += 1
    return parts


def stored_rows(core: Core, run_id: str) -> dict[str, int]:
    """How many rows each table has that points at the run or one of its members; those that have some."""

    def count(session: Session) -> dict[str, int]:
        number = session.scalar(select(Run.number).where(Run.id == run_id))
        members = session.scalars(select(Member.id).where(Member.run_id == run_id)).all()
        found = {"run": 0 if number is None else 1}
        for table, column in (*pointing_at("member"), *pointing_at("attempt"), *pointing_at("run")):
            owner = [number] if column == "run" else [run_id] if column == "run_id" else [*members]
            if column != "attempt_id":
                query = select(func.count()).select_from(table).where(table.c[column].in_(owner))
                found[table.name] = max(found.get(table.name, 0), session.scalar(query) or 0)
        return {name: rows for name, rows in found.items() if rows}

    return core.read(count)
