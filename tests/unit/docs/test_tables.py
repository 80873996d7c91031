"""Tables of the design pages hold what the code holds: end reasons, and a worker's settings."""

import re
from pathlib import Path

from drumline.contracts.reasons import REASONS
from drumline_worker.settings import WorkerSettings

PAGES = Path(__file__).resolve().parents[3] / "docs" / "design"


def rows(page: str, first: str) -> list[list[str]]:
    """The cells of the table whose first heading is `first`."""
    table = (PAGES / page).read_text().split(f"\n| {first} |")[1].split("\n\n")[0]
    return [re.findall(r"[^|]+(?=\|)", line) for line in table.splitlines()[2:]]


def test_every_end_reason_has_its_row() -> None:
    told = [[cell.strip() for cell in row] for row in rows("ends.md", "reason")]
    assert told == [
        [reason, facts.category.value.replace("_", " "), "yes" if facts.retryable else "no", facts.sentence]
        for reason, facts in REASONS.items()
    ]


def test_every_setting_of_a_worker_has_its_row() -> None:
    told = [row[0].strip(" `").removeprefix("DRUMLINE_WORKER_").lower() for row in rows("worker.md", "setting")]
    assert told == list(WorkerSettings.model_fields)
