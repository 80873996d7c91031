"""`make fuzz`: a counted campaign against a server on SQLite; the report goes to `build/fuzz/report.json`."""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from drumline_server import schema
from fuzz.campaign import Campaign, Report
from fuzz.world import World
from support.edge import edge_server

REPORT = Path("build/fuzz/report.json")


def main() -> int:
    """Returns 1 if something came back that never may."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="drumline-fuzz-") as directory:
        url = f"sqlite:///{directory}/drumline.db"
        schema.migrate(url)
        with edge_server(url, Path(directory) / "data") as server:
            report = Campaign(World(server)).run(chosen.requests, chosen.seed, write)
    print(f"{report.requests} requests to {len(report.routes)} routes: {dict(report.statuses)}")
    print(f"slowest {report.slowest_s:.2f} s, {len(report.failures)} failures; {REPORT}")
    return 1 if report.failures else 0


def write(report: Report) -> None:
    """So far: a campaign that is stopped has told what it found."""
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report.as_json(), indent=2))


if __name__ == "__main__":
    sys.exit(main())
