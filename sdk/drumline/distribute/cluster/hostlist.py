"""Slurm's short forms: lists of hosts such as ``node[01-03,7]``, counts of tasks such as ``2(x3),1``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from drumline.distribute.cluster.cluster_spec import MAX_TASKS
from drumline.distribute.errors import InvalidValueError

#: Far beyond what Slurm writes for 65536 hosts of one naming scheme.
_MAX_CHARACTERS = 262_144
_HOST = re.compile(r"(?P<prefix>[^\s,\[\]]*)(?:\[(?P<ranges>[^\[\]]+)\])?")
_RANGE = re.compile(r"(?P<first>\d{1,18})(?:-(?P<last>\d{1,18})(?:[:/](?P<step>\d{1,9}))?)?", re.ASCII)
_COUNT = re.compile(r"(?P<tasks>\d{1,9})(?:\(x(?P<nodes>\d{1,9})\))?", re.ASCII)


def expand_hostlist(hostlist: str) -> list[str]:
    """The hosts of a list, in its order: "n[1-2],m5,o[08-10]" is n1, n2, m5, o08, o09, o10.

    Ranges keep leading zeros and may have a step, "n[0-6:2]". Raises InvalidValueError for another form, such as text
    behind a bracket or two brackets, and for more than 65536 hosts.
    """
    _check_length("hostlist", hostlist)
    hosts: list[str] = []
    for part in _parts(hostlist):
        hosts.extend(_hosts(hostlist, part, MAX_TASKS - len(hosts)))
    return hosts


def expand_tasks_per_node(tasks_per_node: str) -> list[int]:
    """The tasks of each node, in the list's order: "3(x2),1" is 3, 3, 1.

    Raises InvalidValueError for another form, and for more than 65536 nodes.
    """
    _check_length("tasks per node", tasks_per_node)
    counts: list[int] = []
    for part in tasks_per_node.split(","):
        match = _COUNT.fullmatch(part)
        nodes = int(match["nodes"] or 1) if match else 0
        if match is None or not 1 <= nodes <= MAX_TASKS - len(counts):
            raise InvalidValueError(
                f"tasks per node {tasks_per_node!r:.120}: {part!r:.40} is no count; write tasks or tasks(xnodes), such "
                f"as '2(x3),1', of at most {MAX_TASKS} nodes"
            )
        counts += [int(match["tasks"])] * nodes
    return counts


def _parts(hostlist: str) -> Iterator[str]:
    """What stands between the commas that are outside of brackets; a last comma ends the list."""
    part, depth = "", 0
    for character in hostlist:
        if character == "," and depth == 0:
            if not part:
                raise _refusal(hostlist, "a host is missing before a comma")
            yield part
            part = ""
            continue
        depth += {"[": 1, "]": -1}.get(character, 0)
        part += character
    if part:
        yield part


def _hosts(hostlist: str, part: str, room: int) -> list[str]:
    match = _HOST.fullmatch(part)
    if match is None:
        raise _refusal(hostlist, f"{part!r:.60} is no host; it may have one [...], at its end")
    prefix, ranges = match["prefix"], match["ranges"]
    if ranges is None and room:
        return [prefix]
    numbers: list[str] = []
    for each in (ranges or "0").split(","):
        numbers.extend(_numbers(hostlist, each, room - len(numbers)))
    return [prefix + number for number in numbers]


def _numbers(hostlist: str, written: str, room: int) -> list[str]:
    match = _RANGE.fullmatch(written)
    if match is None:
        raise _refusal(hostlist, f"{written!r:.40} is no range; write 3, 3-5 or 3-9:2")
    first, last = int(match["first"]), int(match["last"] or match["first"])
    numbers = range(first, last + 1, int(match["step"] or 1) or 1)
    if last < first or match["step"] == "0":
        raise _refusal(hostlist, f"{written!r:.40} is an empty range")
    if len(numbers) > room:
        raise _refusal(hostlist, f"it has more than {MAX_TASKS} hosts")
    return [str(number).zfill(len(match["first"])) for number in numbers]


def _check_length(what: str, text: str) -> None:
    if not isinstance(text, str) or len(text) > _MAX_CHARACTERS:
        raise InvalidValueError(f"{what} must be a text of at most {_MAX_CHARACTERS} characters; got {text!r:.80}")


def _refusal(hostlist: str, why: str) -> InvalidValueError:
    return InvalidValueError(f"hostlist {hostlist!r:.120}: {why}")
