"""An import contract: each library has its homes, the packages that may use it, and one without a home fails.

Two tables, each line `library, ...: package, ...`; `!package` is left out of one named before. `used_in` names those
who import a library themselves; all that are imported anywhere must stand there, the standard library aside.
`reached_from` names those who may get it even by way of others: it costs its time and memory wherever it is loaded.
"""

import sys
from collections.abc import Callable, Iterator, Set

import grimp
from importlinter import Contract, ContractCheck, fields, output

Table = dict[str, list[str]]


class Homes(Contract):
    """Which packages use which library."""

    type_name = "homes"
    used_in = fields.ListField(subfield=fields.StringField())
    reached_from = fields.ListField(subfield=fields.StringField())

    def check(self, graph: grimp.ImportGraph, verbose: bool) -> ContractCheck:
        """Every import that stands outside its library's homes, and every library without one."""
        used, reached = _table(self.used_in), _table(self.reached_from)
        ours = {name for name in graph.modules if not graph.is_module_squashed(name)}
        foreign = set(graph.modules) - ours - sys.stdlib_module_names
        flaws = [
            f"{library} is imported and has no home: enter it" for library in sorted(foreign - set(used) - set(reached))
        ]
        flaws += [
            f"{gone} has a home and is imported nowhere: leave it out" for gone in {*used, *reached} - graph.modules
        ]
        used, reached = _present(used, graph), _present(reached, graph)
        flaws += _strays(used, "imports", graph.find_modules_that_directly_import)
        flaws += _strays(reached, "reaches", lambda name: graph.find_downstream_modules(name, as_package=name in ours))
        return ContractCheck(kept=not flaws, metadata={"flaws": flaws})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """One line a flaw."""
        for flaw in check.metadata["flaws"]:
            output.print_error(flaw)


def _table(lines: object) -> Table:
    assert isinstance(lines, list)
    halves = [line.replace(" ", "").split(":") for line in lines]
    return {library: homes.split(",") for libraries, homes in halves for library in libraries.split(",")}


def _present(table: Table, graph: grimp.ImportGraph) -> Table:
    return {library: homes for library, homes in table.items() if library in graph.modules}


def _strays(table: Table, verb: str, importers: Callable[[str], Set[str]]) -> Iterator[str]:
    for library, homes in table.items():
        allowed = tuple(f"{home}." for home in homes if not home.startswith("!"))
        banned = tuple(f"{home[1:]}." for home in homes if home.startswith("!"))
        for importer in sorted(importers(library)):
            if not f"{importer}.".startswith(allowed) or f"{importer}.".startswith(banned):
                yield f"{importer} {verb} {library}, whose homes are {', '.join(homes)}"
