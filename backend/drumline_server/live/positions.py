"""Where a stream stands: topics asked for, and the last event of each run that its reader has seen."""

from collections.abc import Mapping
from dataclasses import dataclass

from drumline.contracts.ids import is_id
from drumline_server.errors import InvalidRequestError

MAX_RUNS = 64
_MAX_SEQ = 2**53
HINTS = frozenset({"runs", "fleet"})


@dataclass(frozen=True, slots=True)
class Topics:
    """Runs whose events are wanted, in the order asked for, and lists whose changes are."""

    runs: tuple[str, ...]
    hints: frozenset[str]


def parse_topics(text: str) -> Topics:
    """`run:<id>,runs,fleet` as topics. Raises InvalidRequestError for anything else."""
    runs: list[str] = []
    hints: set[str] = set()
    for topic in filter(None, text.split(",")):
        kind, _, run_id = topic.partition(":")
        if topic in HINTS:
            hints.add(topic)
        elif kind == "run" and is_id(run_id, "run"):
            runs.append(run_id)
        else:
            raise InvalidRequestError("topics", f"{topic[:80]!r} is no topic", hint="Use run:<id>, runs or fleet.")
    if not runs and not hints:
        raise InvalidRequestError("topics", "is empty", hint="Use run:<id>, runs or fleet, separated by commas.")
    if len(set(runs)) > MAX_RUNS:
        raise InvalidRequestError("topics", f"names {len(set(runs))} runs; at most {MAX_RUNS}")
    return Topics(tuple(dict.fromkeys(runs)), frozenset(hints))


def parse_positions(text: str, field: str) -> dict[str, int]:
    """`run_x=41,run_y=7` as event numbers by run. Raises InvalidRequestError."""
    positions: dict[str, int] = {}
    for entry in filter(None, text.split(",")):
        run_id, _, seq = entry.partition("=")
        if not is_id(run_id, "run") or not (seq.isascii() and seq.isdigit()) or len(seq) > 16 or int(seq) >= _MAX_SEQ:
            raise InvalidRequestError(field, f"{entry[:80]!r} is not of the form <run id>=<event number>")
        positions[run_id] = int(seq)
    return positions


def format_positions(positions: Mapping[str, int]) -> str:
    """The `id:` of an event: where the reader stands in every run of its connection."""
    return ",".join(f"{run_id}={seq}" for run_id, seq in positions.items())
