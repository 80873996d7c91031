"""The simulator in the test run: histories of many seeds, every mutant, and what once broke."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sim.campaign import Stage, Sweep, disks_in_memory, known_seeds
from sim.mutants import MUTANTS, RARE, Mutant
from sim.plan import History, plan

SEEDS, EACH = 300, 30
SEARCHED = 500
"""So many seeds a mutant is tried on at the most."""
TELLING = 113
"""A seed whose commits notify several hosts at once."""
TESTS = Path(__file__).parents[1]
REGRESSIONS = sorted((TESTS / "sim" / "regressions").glob("*.json"))


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with disks_in_memory() as disks:
        opened = Stage(disks)
        yield opened
        opened.close()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(0, SEEDS, EACH))
def test_invariants_hold_in_all_histories(
    first: int, stage: Stage, record_property: Callable[[str, object], None]
) -> None:
    """So many by so many: what a test may take is wall time, and a busy machine takes long for all of them."""
    lived = Sweep()
    for seed in range(first, first + EACH):
        lived.add(stage.live(plan(seed)))
    assert not lived.broken, "\n\n".join(outcome.told() for outcome in lived.broken[:3])
    assert lived.executions > EACH
    record_property("seeds", lived.seeds)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_safeguard_is_missed_when_it_is_off(
    mutant: Mutant, stage: Stage, record_property: Callable[[str, object], None]
) -> None:
    """By the seed that did once; where the code has changed since, by another: `--remember` then keeps that one."""
    caught = stage.catch(mutant, [known_seeds()[mutant.name], *range(SEARCHED)])
    assert caught.seed is not None, f"{mutant.safeguard} is off, and none of {SEARCHED} histories notices"
    record_property("mutants", 1)


@pytest.mark.parametrize("path", REGRESSIONS, ids=[path.stem for path in REGRESSIONS])
def test_history_that_broke_once_holds_now(path: Path, stage: Stage) -> None:
    kept = json.loads(path.read_text())
    history = History.model_validate(kept["history"])
    outcome = stage.live(history)
    assert outcome.violation is None, outcome.told()
    with next(mutant for mutant in (*MUTANTS, *RARE) if mutant.name == kept["breaks_with"]).applied():
        assert stage.live(history).violation is not None, "the history does not meet what broke it any more"


def test_seed_gives_the_same_history_in_every_process() -> None:
    """Whatever the order of sets and the speed of the machine."""
    first, again = _told_by_a_process(TELLING, hash_seed="1"), _told_by_a_process(TELLING, hash_seed="2")
    assert len(first.splitlines()) > 30
    assert first == again


def _told_by_a_process(seed: int, hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "sim", "--seed", str(seed)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=environment)
    return told.stdout + told.stderr
