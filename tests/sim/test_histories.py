"""The simulator in the test run: histories of many seeds, every mutant, and what once broke."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sim.campaign import Stage, known_seeds, sweep
from sim.mutants import MUTANTS, RARE, Mutant
from sim.plan import History, plan

SEEDS = 500
REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.json"))


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    opened = Stage()
    yield opened
    opened.close()


@pytest.mark.timeout(900)
def test_invariants_hold_in_all_histories() -> None:
    swept = sweep(range(SEEDS), os.cpu_count() or 1, lambda swept, outcome: None)
    assert not swept.broken, "\n\n".join(outcome.told() for outcome in swept.broken[:3])
    assert swept.seeds == SEEDS
    assert swept.executions > SEEDS


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_safeguard_is_missed_when_it_is_off(mutant: Mutant, stage: Stage) -> None:
    """By the seed that did once; where the code has changed since, by another."""
    caught = stage.catch(mutant, [known_seeds()[mutant.name], *range(SEEDS)])
    assert caught.seed is not None, f"{mutant.safeguard} is off, and none of {SEEDS} histories notices"


@pytest.mark.parametrize("path", REGRESSIONS, ids=[path.stem for path in REGRESSIONS])
def test_history_that_broke_once_holds_now(path: Path, stage: Stage) -> None:
    kept = json.loads(path.read_text())
    history = History.model_validate(kept["history"])
    outcome = stage.live(history)
    assert outcome.violation is None, outcome.told()
    with next(mutant for mutant in (*MUTANTS, *RARE) if mutant.name == kept["breaks_with"]).applied():
        assert stage.live(history).violation is not None, "the history does not meet what broke it any more"


def test_seed_gives_the_same_history_again(stage: Stage) -> None:
    first, again = stage.live(plan(3)), stage.live(plan(3))
    assert (first.commits, first.executions, first.virtual_s) == (again.commits, again.executions, again.virtual_s)
