"""The public surface stays as the snapshot says: names and signatures, REST, command line, settings."""

import copy
import json
import subprocess
import sys
from pathlib import Path

from scripts.house.surface import SNAPSHOT, differences

ROOT = Path(__file__).resolve().parents[3]


def test_nothing_of_the_public_surface_comes_or_goes_unsaid() -> None:
    compared = subprocess.run(
        [sys.executable, "-m", "scripts.house.surface"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert compared.returncode == 0, f"{compared.stderr}\nIf that is meant, take a new snapshot: make surface"


def test_what_is_gone_changed_or_new_is_named() -> None:
    kept = json.loads(SNAPSHOT.read_text())
    now = copy.deepcopy(kept)
    now["python"]["drumline.Client"] = "(address)"
    del now["settings"]["DRUMLINE_HOST"]
    now["command line"]["drumline submit"].remove("--detach")
    now["rest"]["GET /api/v1/hosts"].append("query odd")
    now["rest"]["GET /api/v1/odd"] = []

    named = {line.split(": ")[1] for line in differences(kept, now)}
    assert named == {"drumline.Client", "drumline submit", "DRUMLINE_HOST", "GET /api/v1/hosts", "GET /api/v1/odd"}
