"""Reads public traces of real accelerators, and holds what Drumline says of them against what was counted without it.

python -m traces.read_public DIRECTORY

The traces are others' and no part of this repository: `public.json` names where each is, under what licence, and by
Git's name of its content which one it is. Of those that lie in DIRECTORY, under any name, the figures must be these.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import jax

from drumline.contracts.profiles import TracedCall
from drumline_worker.runner.step_traces import prepare_reading
from drumline_worker.runner.trace_reading import TracedDevice, read_trace

KNOWN = Path(__file__).with_name("public.json")
SHOWN = ("computing_ns", "collective_ns", "both_ns", "idle_ns", "operations")


def main(directory: Path) -> int:
    """1 where a trace is read otherwise than counted, 2 where none of the known ones is there."""
    prepare_reading()
    known = {trace["blob"]: trace for trace in json.loads(KNOWN.read_text())["traces"]}
    is_right: list[bool] = []
    for path in sorted(directory.rglob("*.pb")):
        content = path.read_bytes()
        trace = known.get(blob_of(content))
        if trace is None:
            continue
        read = figures_of(content, trace["devices"])
        is_right.append(read == trace["figures"])
        print(f"{'as counted' if is_right[-1] else 'OTHERWISE'}: {trace['source']}")
        if not is_right[-1]:
            print(json.dumps(read))
    if not is_right:
        print(f"no trace of {KNOWN.name} is in {directory}; it says where they are", file=sys.stderr)
        return 2
    return 0 if all(is_right) else 1


def blob_of(content: bytes) -> str:
    """As `git hash-object` says it."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def figures_of(content: bytes, devices: int) -> dict[str, Any]:  # Any: JSON
    """The span, of each device that did something its times and operations, and what are collectives."""
    data = jax.profiler.ProfileData.from_serialized_xspace(content)
    traced = [TracedDevice(number, number, f"dev_0{number:025d}") for number in range(devices)]
    call = TracedCall(step=0, call=0, **read_trace(data, traced))
    return {
        "span_ns": call.span_ns,
        "devices": {
            str(number): [getattr(device, name) for name in SHOWN]
            for number, device in enumerate(call.devices)
            if device.operations
        },
        "collectives": sorted(one.name for one in call.content.operations if one.is_collective),
    }


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
