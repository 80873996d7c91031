"""`make fuzz`: a counted campaign against a server on a database of each kind; reports go to `build/fuzz/`."""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from fuzz.campaign import Campaign, Report
from fuzz.world import World
from support.databases import DATABASES, new_database
from support.edge import edge_server

REPORTS = Path("build/fuzz")


def main() -> int:
    """Returns 1 if something came back that never may."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--database", choices=DATABASES, help="of this kind only")
    chosen = parser.parse_args()
    kinds = [chosen.database] if chosen.database else DATABASES
    return max(_campaign(kind, chosen.requests, chosen.seed) for kind in kinds)


def _campaign(kind: str, requests: int, seed: int) -> int:
    path = REPORTS / f"{kind}.json"
    with (
        new_database(kind) as url,
        tempfile.TemporaryDirectory(prefix="drumline-fuzz-") as directory,
        edge_server(url, Path(directory)) as server,
    ):
        report = Campaign(World(server)).run(requests, seed, lambda so_far: _write(path, so_far))
    print(f"{kind}: {report.requests} requests to {len(report.routes)} routes: {dict(report.statuses)}")
    print(f"slowest {report.slowest_s:.2f} s, {len(report.failures)} failures; {path}", flush=True)
    return 1 if report.failures else 0


def _write(path: Path, report: Report) -> None:
    """So far: a campaign that is stopped has told what it found."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report.as_json(), indent=2))


if __name__ == "__main__":
    sys.exit(main())
