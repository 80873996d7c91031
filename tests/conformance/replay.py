"""Replays a file of the golden schema against the engine, through its public API only.

    python tests/conformance/replay.py --cases FILE [--categories a,b,c]

Prints every failing case with what was expected and what was observed. Exit status 0 only if none failed, 2 for a file
that is none of the schema.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

CPU_DEVICES = 8


def main(arguments: list[str] | None = None) -> int:
    """The number of failed cases decides the exit status; 2 where there are no cases to replay."""
    parser = argparse.ArgumentParser(description="Replay golden cases.")
    parser.add_argument("--cases", type=Path, required=True, help="a file of the golden schema")
    parser.add_argument("--categories", help="only these, separated by commas")
    options = parser.parse_args(arguments)
    from conformance.loader import load

    categories = options.categories.split(",") if options.categories else None
    try:
        cases = load(options.cases, categories)
    except (OSError, ValueError) as error:
        print(f"replay.py: {error}", file=sys.stderr)
        return 2
    prepare_jax()
    tally: Counter[tuple[str, str]] = Counter()
    for case in cases:
        outcome, report = replay_case(case)
        tally[case.category, outcome] += 1
        if report:
            print(report, flush=True)
    for category in sorted({category for category, _ in tally}):
        counts = ", ".join(f"{tally[category, outcome]} {outcome}" for outcome in ("passed", "failed", "skipped"))
        print(f"{category}: {counts}")
    total: Counter[str] = Counter()
    for (_, outcome), count in tally.items():
        total[outcome] += count
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return 1 if total["failed"] else 0


def prepare_jax() -> None:
    """64-bit values and eight CPU devices, before anything makes an array."""
    import drumline.distribute as dist

    dist.set_cpu_devices(CPU_DEVICES)
    import jax

    jax.config.update("jax_enable_x64", True)


def replay_case(case: Any) -> tuple[str, str]:
    """ "passed", "failed" or "skipped", and what to print about it."""
    from conformance import programs
    from conformance.deviations import excused
    from conformance.matching import Raised, matches
    from conformance.registry import PROGRAMS

    programs.register_all()
    if case.program not in PROGRAMS:
        return "skipped", f"SKIPPED {case.id}: no program {case.program!r}"
    observed: Any
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            observed = PROGRAMS[case.program](case)
    except Exception as error:  # noqa: BLE001 - whatever a program meets is the observation
        observed = Raised(error)
    if matches(case.expected, observed, case.rtol) or excused(case, observed):
        return "passed", ""
    return "failed", describe_failure(case, observed)


def describe_failure(case: Any, observed: Any) -> str:
    """The case with both sides."""
    from conformance.matching import Raised

    shown = str(observed) if isinstance(observed, Raised) else json.dumps(observed, default=str)
    lines = [
        f"FAILED {case.id} ({case.program}, {case.kind} x {case.num_replicas})",
        f"  inputs   {json.dumps(case.inputs)}",
        f"  expected {json.dumps(case.expected)}",
        f"  observed {shown}",
    ]
    if case.quirk:
        lines.append(f"  quirk    {case.quirk}")
    if isinstance(observed, Raised) and "raises" not in case.expected:
        frames = traceback.extract_tb(observed.error.__traceback__)[-2:]
        lines += [f"  at       {frame.filename}:{frame.lineno} {frame.line}" for frame in frames]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
