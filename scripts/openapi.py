"""Writes frontend/openapi.json, from which the dashboard's types are made. `--check` only compares."""

import json
import sys
from pathlib import Path

from drumline_server.app.application import create_app, describe
from drumline_server.base.settings import Settings

TARGET = Path(__file__).parents[1] / "frontend" / "openapi.json"


def main() -> int:
    wanted = json.dumps(describe(create_app(Settings())), indent=2, sort_keys=True) + "\n"
    if "--check" in sys.argv[1:]:
        current = TARGET.read_text() if TARGET.exists() else ""
        if current != wanted:
            print(f"{TARGET} is out of date; run: python scripts/openapi.py", file=sys.stderr)
            return 1
        return 0
    TARGET.write_text(wanted)
    print(f"wrote {TARGET}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
