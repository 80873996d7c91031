"""The figures as a table for people, beside those of the baseline and the aims."""

from collections.abc import Callable, Iterator
from typing import Any

_TRACED = {
    "files": "files",
    "functions": "functions",
    "lines": "lines",
    "crossings": "crossings",
    "crossings_back": "back",
    "crossings_back_handed_over": "handed over",
    "both_ways": "both ways",
}
"""The columns: back goes into a room that the way has left already; handed over, below a function that was given."""
_AIMS: dict[str, Callable[[int], int]] = {
    "files": lambda before: round(before * 2 / 3),
    "functions": lambda before: before // 2,
    "crossings": lambda before: before // 2,
    "crossings_back": lambda _: 0,
    "both_ways": lambda _: 0,
}
"""Aims are of what the baseline has: functions and crossings halved, files down by a third, no crossing back."""
_SHOWN_GROUPS = 6
House = dict[str, Any]
"""What `build/house.json` holds. Any: figures and names at several depths."""


def report(house: House, before: House | None) -> str:
    """Every figure; `before [aim] now` where there is a baseline, the state before the code was put in order."""
    return "\n".join([*_traces(house, before), "", *_shape(house, before)])


def _traces(house: House, before: House | None) -> Iterator[str]:
    if not house["traces"]:
        return
    yield f"{'trace':24}" + "".join(f"{title:>20}" for title in _TRACED.values())
    for name, figures in house["traces"].items():
        old = (before or {}).get("traces", {}).get(name, {})
        yield f"{name:24}" + "".join(f"{_cell(each, figures.get(each), old.get(each)):>20}" for each in _TRACED)
    for name, figures in house["traces"].items():
        for rooms, count in figures.get("rooms_crossed_back", {}).items():
            yield f"back in {name}: {rooms} {count}"
        for rooms in figures.get("both_ways", []):
            yield f"both ways in {name}: {rooms}"
    yield f"(before [aim] now; Python {house['python']})"


def _cell(name: str, now: int | list[str] | None, old: int | list[str] | None) -> str:
    if now is None:
        return "-"
    now, old = (len(each) if isinstance(each, list) else each for each in (now, old))
    aim = "" if old is None or name not in _AIMS else f"{old} [{_AIMS[name](old)}] "
    return f"{aim}{now}" if aim or old is None else f"{old} {now}"


def _shape(house: House, before: House | None) -> Iterator[str]:
    shape, old = house["shape"], (before or {}).get("shape")
    yield from _line("modules", shape["modules"], old and old["modules"])
    for name, count in shape["modules_by_distribution"].items():
        aim = " [100]" if name == "drumline_server" else ""
        yield from _line(f"  {name}{aim}", count, old and old["modules_by_distribution"].get(name))
    yield from _line("statements", shape["statements_in_all"], old and old["statements_in_all"])
    yield from _line("longest file [400]", _longest(shape["longest_file"]), old and _longest(old["longest_file"]))
    yield from _line(
        "longest function [40]", _longest(shape["longest_function"]), old and _longest(old["longest_function"])
    )
    for what in ("files_too_long", "functions_too_long"):
        yield from _line(f"{what.replace('_', ' ')} [0]", len(shape[what]), old and len(old[what]))
    yield from _line("unused exports", len(shape["unused_exports"]), old and len(old["unused_exports"]))
    yield from _line("  named nowhere at all", len(shape["dead"]), old and len(old["dead"]))
    mine, theirs = shape["dashboard"], old and old["dashboard"]
    for name in ("files", "lines"):
        yield from _line(f"dashboard: {name}", mine[name], theirs and theirs[name])
    longest = _longest(mine["longest_file"])
    yield from _line("dashboard: longest file [400]", longest, theirs and _longest(theirs["longest_file"]))
    unused = len(mine["unused_exports"])
    yield from _line("dashboard: unused exports", unused, theirs and len(theirs["unused_exports"]))
    for when, found in shape["circles"].items():
        for what in ("files", "rooms"):
            groups = found[what]
            was = old["circles"][when][what] if old else None
            yield from _line(
                f"{what} in circles, imports {when} [0]", _sizes(groups), None if was is None else _sizes(was)
            )
    yield ""
    yield from _packages(shape["statements"], old and old["statements"])


def _packages(statements: dict[str, int], old: dict[str, int] | None) -> Iterator[str]:
    yield "statements by package"
    for package in sorted({*statements, *(old or {})}):
        yield from _line(f"  {package}", statements.get(package, 0), None if old is None else old.get(package, 0))


def _line(what: str, now: object, old: object) -> Iterator[str]:
    yield f"{what:44}{now}" if old is None else f"{what:44}{old} -> {now}"


def _longest(found: dict[str, Any]) -> str:
    return f"{found['lines']} ({found.get('file') or found.get('function')})"


def _sizes(groups: list[list[str]]) -> str:
    sizes = [len(group) for group in groups]
    return f"{sum(sizes)} in {len(sizes)} ({', '.join(map(str, sizes[:_SHOWN_GROUPS]))})" if sizes else "0"
