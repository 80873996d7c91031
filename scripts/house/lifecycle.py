"""Compares the steps that docs/lifecycle.md tells with what the traces entered, and in which order.

A section names its trace in a comment below its heading, `<!-- trace: submit -->`; each of its numbered steps begins
with a function in backticks, such as `services.submit.submit_run`: the end of its dotted name. Steps of other
sections, which no trace records, are only looked up in the code, by a test.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts.house.rooms import module_of

PAGE = Path("docs", "lifecycle.md")
_SECTION = re.compile(r"<!-- trace: ([\w ]+?) -->")
_STEP = re.compile(r"^(\d+)\. (.*(?:\n(?!\d+\. |#|<!--).*)*)", re.M)
_CODE = re.compile(r"`([A-Za-z_][\w.]*)(?:\(\))?`")


def compare(page: str, traces: dict[str, Any]) -> list[str]:
    """What is wrong, a sentence each: steps whose function the trace does not enter, or not after the step before.

    What a run or host does all the time on the same path, as it sends what a member reports, has no time of its own
    in a trace: of such a step only that it is on the way is known. It may be entered again, later and on a path of the
    trace alone, as `CommitNews.publish` is by each commit; the steps after it need not wait for that.
    """
    found: list[str] = []
    _, *sections = _SECTION.split(page)
    for name, text in zip(sections[::2], sections[1::2], strict=True):
        if name in traces:
            entered, shared = ([_dotted(each) for each in traces[name].get(of, ())] for of in ("entered", "shared"))
            found += _compare_section(name, text.split("\n## ")[0], entered, shared)
        else:
            found.append(f"{name}: there is no such trace, only {', '.join(traces)}")
    return found


def _compare_section(name: str, text: str, entered: list[str], shared: list[str]) -> Iterator[str]:
    last = -1
    for number, step in _STEP.findall(text):
        code = _CODE.search(step)
        if code is None:
            yield f"{name}, step {number}: names no function"
            continue
        at = [place for place, each in enumerate(entered) if f".{each}".endswith(f".{code[1]}")]
        is_shared = any(f".{each}".endswith(f".{code[1]}") for each in shared)
        if not at and is_shared:
            continue
        if not at:
            yield f"{name}, step {number}: {code[1]} is not on the way"
        elif max(at) <= last:
            yield f"{name}, step {number}: {code[1]} is entered before the step above"
        elif not is_shared:
            last = min(place for place in at if place > last)


def _dotted(entered: str) -> str:
    file, _, function = entered.rpartition(":")
    return f"{module_of(Path(file))}.{function.replace('.<locals>', '')}"
