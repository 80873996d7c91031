"""The tables of a project beside the model."""

from collections.abc import Callable, Mapping
from typing import Any

from drumline.contracts.states import AttemptState
from machine.model import Model
from support.facts import AttemptRow, Facts

_STAGES = {AttemptState.DISPATCHED: "dispatched", AttemptState.FINISHING: "finishing"}


def compare(facts: Facts, lost: Mapping[str, bool], model: Model) -> None:
    """The tables are as the model says; of each host whether it is `lost`."""

    def same(what: str, stands: dict[str, Any], expected: dict[str, Any]) -> None:  # Any: any column
        wrong = {name: (stands.get(name), expected.get(name)) for name in stands | expected}
        wrong = {name: pair for name, pair in wrong.items() if pair[0] != pair[1]}
        assert not wrong, f"{what}: stands, expected: {wrong}"

    newest = {run_id: facts.attempts.get(row.attempt_id or "") for run_id, row in facts.runs.items()}
    runs = _of(facts.runs, lambda row: (row.state, row.fence, row.attempts))
    same("runs", runs, _of(model.runs, lambda run: (run.state, run.fence, run.attempts)))
    same(
        "attempts",
        {name: _stage(row) for name, row in newest.items() if row is not None},
        {run.id: run.attempt for run in model.runs.values() if run.fence},
    )
    parts = {part.id: (part.state, part.acked, part.last, part.life or None) for part in model.parts}
    same("members", _of(facts.members, lambda row: (row.state, row.acked_seq, row.last_seq, row.incarnation_id)), parts)
    devices = {name: (state, holder.attempt_id if holder else None) for name, (state, holder) in model.devices.items()}
    same("devices", _of(facts.devices, lambda row: (row.state, row.attempt_id)), devices)
    same("hosts", dict(lost), _of(model.hosts, lambda host: host.lost))


def _of(rows: Mapping[str, Any], show: Callable[[Any], object]) -> dict[str, Any]:  # Any: rows of any table
    return {name: show(row) for name, row in rows.items()}


def _stage(row: AttemptRow) -> str:
    return "over" if not row.is_live else _STAGES.get(AttemptState(row.state), "begun")
