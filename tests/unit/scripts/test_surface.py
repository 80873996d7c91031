"""The public surface stays as the snapshot says: names and signatures, REST, command line, settings."""

import copy
import json
import subprocess
import sys
from pathlib import Path

from scripts.house.surface import SNAPSHOT, missing

ROOT = Path(__file__).resolve().parents[3]


def test_nothing_of_the_public_surface_disappears_unsaid() -> None:
    compared = subprocess.run(
        [sys.executable, "-m", "scripts.house.surface"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert compared.returncode == 0, (
        f"{compared.stderr}\nIf that is meant, take a new snapshot: python -m scripts.house.surface --write"
    )


def test_what_is_gone_or_changed_is_named_and_what_is_new_is_not() -> None:
    kept = json.loads(SNAPSHOT.read_text())
    now = copy.deepcopy(kept)
    now["python"]["drumline.Client"] = "(address)"
    del now["settings"]["DRUMLINE_HOST"]
    now["command line"]["drumline submit"].remove("--detach")
    now["rest"]["GET /api/v1/hosts"].append("query odd")
    now["rest"]["GET /api/v1/odd"] = []

    named = {line.split(": ")[1] for line in missing(kept, now)}
    assert named == {"drumline.Client", "drumline submit", "DRUMLINE_HOST"}
