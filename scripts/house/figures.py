"""Figures of a trace: what of the code was entered, and how often the way leads from one room into another."""

import ast
import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from scripts.house.recordings import CallPath, Function
from scripts.house.rooms import DASHBOARD, room_of
from scripts.house.shape import Code, Definition

Edge = tuple[Function, Function]
_FROM = re.compile(r"\bfrom ['\"]((?:@/|\.)[^'\"]*)")
_ONWARD, _BACK_HANDED_OVER, _BACK = range(3)
"""Where a crossing leads; one that several paths have counts for the worst of them."""
MAPPER = Path(__file__).with_name("functions.mjs")


class Figures:
    """Of the traces of one checkout."""

    def __init__(self, code: Code) -> None:
        self._lengths = {(str(file), _first_line(node)): _lines(node) for file, node in code.functions()}
        self._imports = {
            (str(each.importer), room_of(each.imported)) for each in code.imports() if each.when != "for types"
        }

    def of(self, paths: dict[CallPath, int]) -> dict[str, Any]:
        """Of the functions on these paths, with the time of each. Any: figures, and names in the order of first entry.

        A crossing is a call from a function of one room to a function of another. It is handed over where the calling
        file does not import that room, but was given the function or its object, as a database is given what is to
        happen in a transaction. A crossing goes back where the room that it leads to is on the path already; where a
        hand-over lies between, the circle is closed by that one and not by an import, and it counts apart. Two rooms
        call each other both ways where each imports and calls the other.
        """
        entered: dict[Function, tuple[int, int]] = {}
        for path, began in paths.items():
            for depth, function in enumerate(path):
                entered[function] = min((began, depth), entered.get(function, (began, depth)))
        functions = sorted(entered, key=lambda each: (entered[each], each))
        crossings: dict[Edge, int] = {}
        for path in paths:
            for edge, way in self._crossings(path):
                crossings[edge] = max(way, crossings.get(edge, _ONWARD))
        by_import = [edge for edge, way in crossings.items() if way == _BACK]
        return {
            "files": len({function.file for function in functions}),
            "functions": len(functions),
            "lines": sum(self._lengths.get((each.file, each.line), 1) for each in functions),
            "crossings": len(crossings),
            "crossings_back": len(by_import),
            "crossings_back_handed_over": sum(way == _BACK_HANDED_OVER for way in crossings.values()),
            "both_ways": _both_ways(edge for edge in crossings if self._imports_room(edge)),
            "rooms_crossed": _by_rooms(crossings),
            "rooms_crossed_back": _by_rooms(by_import),
            "entered": [f"{each.file}:{each.name}" for each in functions],
        }

    def _crossings(self, path: CallPath) -> Iterator[tuple[Edge, int]]:
        rooms = [room_of(Path(function.file)) for function in path]
        own = 0  # where what was handed over last begins
        for at in range(1, len(path)):
            if rooms[at - 1] == rooms[at]:
                continue
            edge = (path[at - 1], path[at])
            if not self._imports_room(edge):
                own = at
            if rooms[at] in rooms[own : at - 1]:
                yield edge, _BACK
            else:
                yield edge, _BACK_HANDED_OVER if rooms[at] in rooms[: at - 1] else _ONWARD

    def _imports_room(self, edge: Edge) -> bool:
        caller, called = edge
        return (caller.file, room_of(Path(called.file))) in self._imports


def of_browser(shown: Sequence[Any], idle: Any, built: Path, root: Path) -> dict[str, Any]:
    """Of what Chromium covered in most of the recordings and not while the page was idle. Any: V8's JSON.

    V8 tells no callers: what counts as a crossing is that an entered file imports an entered file of another room.
    """
    background = _named(idle, built, root).keys()
    counted: dict[tuple[str, int], int] = {}
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for coverage in shown:
        functions = _named(coverage, built, root)
        found |= functions
        for key in functions.keys() - background:
            counted[key] = counted.get(key, 0) + 1
    chosen = [found[key] for key, count in counted.items() if 2 * count > len(shown)]
    files = {each["file"] for each in chosen}
    crossings = [
        edge for edge in _dashboard_imports(root, files) if room_of(Path(edge[0].file)) != room_of(Path(edge[1].file))
    ]
    return {
        "files": len(files),
        "functions": len(chosen),
        "lines": sum(each["lines"] for each in chosen),
        "crossings": len(crossings),
        "both_ways": _both_ways(crossings),
        "rooms_crossed": _by_rooms(crossings),
        "entered": sorted(f"{each['file']}:{each['line']}" for each in chosen),
    }


def _named(coverage: Any, built: Path, root: Path) -> dict[tuple[str, int], dict[str, Any]]:
    mapped = subprocess.run(
        ["node", str(MAPPER), str(built), str(root / DASHBOARD)],
        input=json.dumps(coverage), stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return {(each["file"], each["line"]): each for each in json.loads(mapped.stdout)}


def _dashboard_imports(root: Path, files: set[str]) -> Iterator[Edge]:
    for file in files:
        for name in _FROM.findall((root / file).read_text()):
            base = root / DASHBOARD / name[2:] if name.startswith("@/") else (root / file).parent / name
            for end in (".ts", ".tsx", "/index.ts", "/index.tsx"):
                imported = os.path.relpath(f"{base}{end}", root)
                if imported in files:
                    yield Function(file, 0, ""), Function(imported, 0, "")


def _first_line(node: Definition) -> int:
    """As a code object counts: of the first decorator."""
    return min(node.lineno, *(decorator.lineno for decorator in node.decorator_list), node.lineno)


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _both_ways(edges: Iterable[Edge]) -> list[str]:
    pairs = {(room_of(Path(caller.file)), room_of(Path(called.file))) for caller, called in edges}
    return sorted(f"{one} <-> {other}" for one, other in pairs if one < other and (other, one) in pairs)


def _by_rooms(edges: Iterable[Edge]) -> dict[str, int]:
    found: dict[str, int] = {}
    for caller, called in edges:
        name = f"{room_of(Path(caller.file))} -> {room_of(Path(called.file))}"
        found[name] = found.get(name, 0) + 1
    return dict(sorted(found.items(), key=lambda each: (-each[1], each[0])))
