"""`python -m sim`: lives through many seeds on all cores, or through one seed with its whole story.

python -m sim --seeds 10000         seeds 0 to 9999, then every mutant; report in build/sim/report.json
python -m sim --seeds 0 --remember  every mutant, and what caught each is tried first from then on
python -m sim --seed 17             the history of one seed, line by line
python -m sim --seed 17 --mutant no_self_fencing
python -m sim --seed 17 --plan          what is laid out for the seed, as a regression keeps it
"""

import argparse
import contextlib
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from sim.campaign import Caught, Sweep, catch_mutants, disks_in_memory, remember, sweep
from sim.history import Outcome, live
from sim.mutants import MUTANTS
from sim.plan import History, plan
from sim.store import MemoryStore

REPORT = Path("build/sim/report.json")
MUTANT_SEEDS = 500


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for on the command line."""

    seeds: int
    first: int
    seed: int | None
    mutant: str | None
    mutants: bool
    remember: bool
    plan: bool
    jobs: int


def main() -> int:
    """The exit code."""
    options = _options()
    if options.seed is not None:
        return _tell(plan(options.seed), options)
    started = time.monotonic()
    swept = sweep(range(options.first, options.first + options.seeds), options.jobs, Progress(options.seeds, started))
    caught = catch_mutants(MUTANT_SEEDS, options.jobs) if options.mutants else []
    if options.remember:
        remember(caught)
    _write_report(options, swept, caught, time.monotonic() - started)
    _print_table(caught)
    for outcome in swept.broken[:3]:
        print(f"\n{outcome.told()}", file=sys.stderr)
    blind = [each.mutant for each in caught if each.seed is None]
    print(
        f"{swept.seeds} seeds, {swept.commits} commits checked, {swept.executions} executions: "
        f"{len(swept.broken)} violations; {len(caught) - len(blind)} of {len(caught)} mutants caught"
    )
    return 1 if swept.broken or blind else 0


def _options() -> Options:
    parser = argparse.ArgumentParser(prog="sim", description="Deterministic simulation of the whole service.")
    parser.add_argument("--seeds", type=int, default=500, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="tell the history of this seed")
    parser.add_argument("--mutant", choices=[mutant.name for mutant in MUTANTS], help="with a safeguard off")
    parser.add_argument("--plan", action="store_true", help="only show what is laid out for the seed")
    parser.add_argument("--no-mutants", dest="mutants", action="store_false", help="leave the mutants out")
    parser.add_argument("--remember", action="store_true", help="keep the seeds that caught mutants")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    return Options(**vars(parser.parse_args()))


def _tell(history: History, options: Options) -> int:
    if options.plan:
        print(history.model_dump_json(indent=2))
        return 0
    with contextlib.ExitStack() as stack:
        disks = stack.enter_context(disks_in_memory())
        for mutant in MUTANTS:
            if mutant.name == options.mutant:
                stack.enter_context(mutant.applied())
        outcome = live(history, MemoryStore(), disks, keep_log=True)
    print(outcome.told(lines=100_000))
    return 1 if outcome.violation else 0


class Progress:
    """One line that is written over."""

    def __init__(self, total: int, started: float) -> None:
        self._total = total
        self._started = started
        self._shown = 0.0

    def __call__(self, swept: Sweep, outcome: Outcome) -> None:
        """One more history is over."""
        if outcome.violation is not None:
            print(f"\rseed {outcome.seed}: {outcome.violation}", flush=True)
        now = time.monotonic()
        if now - self._shown < 1.0 and swept.seeds < self._total:
            return
        self._shown = now
        rate = swept.seeds / max(now - self._started, 1e-9)
        end = "\n" if swept.seeds == self._total else ""
        print(
            f"\r{swept.seeds} of {self._total} seeds, {rate:.1f}/s, {len(swept.broken)} violations ",
            end=end, flush=True,
        )  # fmt: skip


def _print_table(caught: list[Caught]) -> None:
    for each in caught:
        found = "NOT CAUGHT" if each.seed is None else f"seed {each.seed:>3}"
        print(f"{each.mutant:<24} {each.safeguard:<48} {found:<11} {each.violation[:90]}")


def _write_report(options: Options, swept: Sweep, caught: list[Caught], seconds: float) -> None:
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    report = {
        "first": options.first,
        "seeds": swept.seeds,
        "commits": swept.commits,
        "executions": swept.executions,
        "virtual_hours": round(swept.virtual_s / 3600, 1),
        "seconds": round(seconds, 1),
        "violations": [{"seed": each.seed, "violation": each.violation} for each in swept.broken],
        "mutants": [
            {"name": each.mutant, "safeguard": each.safeguard, "seed": each.seed, "violation": each.violation}
            for each in caught
        ],
    }
    REPORT.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
