"""Plans examples, conformance cases and large programs for TPU slices and for GPUs, by their own compilers.

python -m chips.plan_all --data-dir build/chips [--write]

The figures must be those that were recorded for this version of the compiler, byte for byte; `--write` records them.
Writes build/bench/chips.json: seconds for each program and slice, beside the aims.
"""

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from drumline_worker.agent.compilers import Compilers

ROOT = Path(__file__).resolve().parents[2]
SLICES = (
    "v2:2x2",
    "v3:2x2",
    "v4:2x2x1",
    "v4:2x2x4",
    "v5e:2x2",
    "v5e:4x4",
    "v5e:16x16",
    "v5p:2x2x1",
    "v5p:2x2x4",
    "v6e:4x4",
    "tpu7x:2x2x1",
)
GPUS = ("h100:8", "a100:8")
EVERYTHING_ON = "v5e:2x4"
"""Every conformance case and the large programs."""
AT_ONCE = 2
LIMIT_S = 1_500
AIMS = {"examples/digits": 3.0, "too-large/weights": 5.0, "transformer/7b": 5.0, "transformer/124m": 120.0}
MOST_MIB = 2_048


def main() -> int:
    """1 where a slice fails, or its figures are others than recorded."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", type=Path, required=True, help="where the compiler was added")
    parser.add_argument("--write", action="store_true", help="record the figures of this version of the compiler")
    options = parser.parse_args()
    compilers = Compilers(options.data_dir / "compilers")
    installed = {family: compilers.find(family) for family in ("tpu", "gpu")}
    if None in installed.values():
        print(f"a compiler is missing in {options.data_dir}", file=sys.stderr)
        return 2
    out = options.data_dir / "planned"
    out.mkdir(parents=True, exist_ok=True)
    names = (EVERYTHING_ON, *SLICES, *GPUS)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        made = list(pool.map(lambda name: plan(name, compilers.library(family_of(name)), out), names))
    failed = [name for name, document in zip(names, made, strict=True) if document is None]
    documents = [document for document in made if document is not None]
    print_table(documents)
    versions = {family: f"{one.name} {one.version}" for family, one in installed.items() if one is not None}
    write_bench(documents, versions)
    different: list[str] = []
    for family, version in versions.items():
        of_family = [document for document in documents if family_of(document["slice"]) == family]
        different += compare(of_family, version.replace(" ", "-"), write=options.write)
    for text in (*(f"{name} failed" for name in failed), *different):
        print(text, file=sys.stderr)
    return 1 if failed or different else 0


def family_of(name: str) -> str:
    """Whose compiler plans for these chips."""
    return "gpu" if name in GPUS else "tpu"


def plan(name: str, library: Path, out: Path) -> dict[str, Any] | None:
    """One slice, in a process of its own; None where it failed, with its output on stderr."""
    target = out / f"{name.replace(':', '-')}.json"
    target.unlink(missing_ok=True)
    command = [sys.executable, "-m", "chips.one_slice", name, str(library), str(target)]
    command += ["--all"] * (name == EVERYTHING_ON)
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, cwd=ROOT)
    if done.returncode:
        print(f"{name}:\n{done.stderr[-3_000:]}", file=sys.stderr)
        return None
    found: dict[str, Any] = json.loads(target.read_text())
    return found


def print_table(documents: list[dict[str, Any]]) -> None:
    """How much was planned for each slice, and why other programs of the one with everything were not."""
    for document in documents:
        cases = sum(name.startswith("case/") for name in document["figures"])
        print(
            f"{document['slice']:12} {len(document['figures']):4} programs, {cases} of them conformance cases; "
            f"{len(document['left_out'])} left out; {sum(document['seconds'].values()):.0f} s; "
            f"{document['rss_mib']} MiB"
        )
    for document in documents:
        if document["slice"] == EVERYTHING_ON:
            for name, why in sorted(document["left_out"].items()):
                print(f"  left out: {name}: {why}")


def write_bench(documents: list[dict[str, Any]], versions: dict[str, str]) -> None:
    """Seconds for each program and slice, and the aims."""
    everything = next((document for document in documents if document["slice"] == EVERYTHING_ON), None)
    aims = {}
    if everything is not None:
        aims = {name: {"aim_s": aim, "s": everything["seconds"].get(name)} for name, aim in AIMS.items()}
    target = ROOT / "build" / "bench" / "chips.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    by_slice = {document["slice"]: document["seconds"] for document in documents}
    rss = {document["slice"]: document["rss_mib"] for document in documents}
    document = {"compilers": versions, "aims": aims, "most_mib": MOST_MIB, "rss_mib": rss, "seconds": by_slice}
    target.write_text(json.dumps(document, indent=1, sort_keys=True))
    print(f"wrote {target}: {json.dumps(aims)}")


def compare(documents: list[dict[str, Any]], version: str, *, write: bool) -> list[str]:
    """Where figures are others than those recorded for this compiler; with `write` they are recorded."""
    recorded = Path(__file__).parent / "figures" / f"{version}.jsonl"
    present = {document["slice"]: document["figures"] for document in documents}
    text = "\n".join(
        json.dumps([name, program, figures], sort_keys=True, separators=(",", ":"))
        for name, programs in sorted(present.items())
        for program, figures in sorted(programs.items())
    )
    if write:
        recorded.parent.mkdir(exist_ok=True)
        recorded.write_text(text + "\n")
        print(f"wrote {recorded}")
        return []
    if not recorded.is_file():
        return [f"no figures are recorded for {version}: look at these, and record them with --write"]
    before, now = (set(part.splitlines()) for part in (recorded.read_text(), text))
    return [f"recorded: {line[:300]}" for line in sorted(before - now)] + [
        f"found:    {line[:300]}" for line in sorted(now - before)
    ]


if __name__ == "__main__":
    sys.exit(main())
