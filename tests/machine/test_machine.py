"""Histories of users, workers and time, through HTTP, beside a small model."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from machine.machine import Drumline
from support.edge import edge_server

pytestmark = pytest.mark.both_databases

EXAMPLES = int(os.environ.get("DRUMLINE_MACHINE_EXAMPLES", "0"))
"""`make machine` sets it, and looks at other histories each time."""
BRIEF = {"sqlite": 8, "postgresql": 4}
"""Examples of every day."""
STEPS = 60 if EXAMPLES else 40


@pytest.mark.timeout(7200 if EXAMPLES else 900)
def test_every_history_is_as_the_model_says(
    database_kind: str, database_url: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    examples = EXAMPLES or BRIEF[database_kind]
    record_property("examples", examples)
    with edge_server(database_url, tmp_path / "data") as running:

        class History(Drumline):
            server = running

        run_state_machine_as_test(
            History,
            settings=settings(
                max_examples=examples,
                stateful_step_count=STEPS,
                derandomize=not EXAMPLES,
                phases=[Phase.generate, Phase.shrink] if EXAMPLES else [Phase.generate],
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
                print_blob=True,
            ),
        )
