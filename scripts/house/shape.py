"""What the code is made of, by its syntax: statements, imports and their circles, lengths, exports that nobody uses."""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.house.rooms import dashboard_sources, module_of, package_of, room_of, sources

LONGEST_FILE, LONGEST_FUNCTION = 400, 40
_AT_START, _LATE, _TYPES = "at start", "late", "for types"
_WORD = re.compile(r"[A-Za-z_]\w*")
_EXPORT = re.compile(r"^export (?:default )?(?:async )?(?:const|let|function|class|interface|type|enum) (\w+)", re.M)
Definition = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Import:
    """One file needs another: when it is loaded, later inside a function, or for type hints alone."""

    importer: Path
    imported: Path
    when: str


class Code:
    """The Python files of one checkout, parsed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.texts = {file: (root / file).read_text() for file in sources(root)}
        self.trees = {file: ast.parse(text) for file, text in self.texts.items()}
        self._modules = {module_of(file): file for file in self.trees}

    def functions(self) -> Iterator[tuple[Path, Definition]]:
        """Every function, nested ones included."""
        for file, tree in self.trees.items():
            for node in ast.walk(tree):
                if isinstance(node, Definition):
                    yield file, node

    def imports(self) -> Iterator[Import]:
        """Between files of ours."""
        for file, tree in self.trees.items():
            for node, when in _imports_in(tree, _AT_START):
                for imported in self._targets(file, node):
                    if imported != file:
                        yield Import(file, imported, when)

    def _targets(self, file: Path, node: ast.Import | ast.ImportFrom) -> Iterator[Path]:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            base = node.module or ""
            if node.level:
                package = module_of(file).split(".")[: None if file.name == "__init__.py" else -1]
                base = ".".join([*package[: len(package) - node.level + 1], *filter(None, [node.module])])
            names = [
                f"{base}.{alias.name}" if f"{base}.{alias.name}" in self._modules else base for alias in node.names
            ]
        for name in names:
            if name in self._modules:
                yield self._modules[name]


def measure(root: Path) -> dict[str, Any]:
    """Every figure, ready for JSON. Any: of several shapes."""
    code = Code(root)
    statements: dict[str, int] = {}
    for file, tree in code.trees.items():
        package = package_of(file)
        statements[package] = statements.get(package, 0) + sum(isinstance(node, ast.stmt) for node in ast.walk(tree))
    lengths = sorted(((text.count("\n"), str(file)) for file, text in code.texts.items()), reverse=True)
    functions = sorted(
        (((node.end_lineno or 0) - node.lineno + 1, f"{file}:{node.name}") for file, node in code.functions()),
        reverse=True,
    )
    exports = unused(code)
    return {
        "modules": len(code.trees),
        "modules_by_distribution": _counted(file.parts[1] for file in code.trees),
        "statements": dict(sorted(statements.items())),
        "statements_in_all": sum(statements.values()),
        "circles": circles(code),
        "longest_file": {"lines": lengths[0][0], "file": lengths[0][1]},
        "files_too_long": [file for lines, file in lengths if lines > LONGEST_FILE],
        "longest_function": {"lines": functions[0][0], "function": functions[0][1]},
        "functions_too_long": [name for lines, name in functions if lines > LONGEST_FUNCTION],
        "unused_exports": exports,
        "dead": [name for name in exports if _mentions(code, name) == 1],
        "dashboard": _dashboard(root),
    }


def circles(code: Code) -> dict[str, Any]:
    """Groups that import each other in a circle, at run time, with late imports, and with those for types."""
    imports = list(code.imports())
    found: dict[str, Any] = {}
    for name, kinds in (
        ("at start", {_AT_START}),
        ("late too", {_AT_START, _LATE}),
        ("types too", {_AT_START, _LATE, _TYPES}),
    ):
        chosen = [each for each in imports if each.when in kinds]
        found[name] = {
            "files": _groups((str(each.importer), str(each.imported)) for each in chosen),
            "rooms": _groups(
                (a, b) for each in chosen if (a := room_of(each.importer)) != (b := room_of(each.imported))
            ),
        }
    return found


def _imports_in(node: ast.AST, when: str) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, when
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from ((found, _TYPES) for found, _ in _imports_in(child, when))
        else:
            yield from _imports_in(child, _LATE if isinstance(child, Definition) and when == _AT_START else when)


def _groups(edges: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Strongly connected components of more than one, the largest first (Tarjan's algorithm)."""
    targets: dict[str, set[str]] = {}
    for source, target in edges:
        targets.setdefault(source, set()).add(target)
        targets.setdefault(target, set())
    reach = {node: _reachable(node, targets) for node in targets}
    groups = {frozenset({node, *(other for other in reach[node] if node in reach[other])}) for node in targets}
    return sorted((sorted(group) for group in groups if len(group) > 1), key=len, reverse=True)


def _reachable(start: str, targets: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    queue = [start]
    while queue:
        for node in targets[queue.pop()] - found:
            found.add(node)
            queue.append(node)
    return found


def unused(code: Code) -> list[str]:
    """Public names of a module's top level that no other file of product, tests, examples and pages mentions.

    Decorated ones are left out: a decorator registers them somewhere.
    """
    mentions: dict[str, set[Path]] = {}
    others = (
        file for folder in ("tests", "examples", "migrations", "docs") for file in (code.root / folder).rglob("*")
    )
    texts = dict(code.texts)
    texts |= {file: file.read_text() for file in others if file.suffix in (".py", ".md")}
    texts[Path("pyproject.toml")] = (code.root / "pyproject.toml").read_text()
    for file, text in texts.items():
        for word in set(_WORD.findall(text)):
            mentions.setdefault(word, set()).add(file)
    return sorted(
        f"{file}:{name}"
        for file, tree in code.trees.items()
        for name in _public(tree)
        if mentions.get(name, set()) <= {file}
    )


def _mentions(code: Code, export: str) -> int:
    file, _, name = export.partition(":")
    return _WORD.findall(code.texts[Path(file)]).count(name)


def _public(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) or (isinstance(node, Definition) and not node.decorator_list):
            yield from _unless_private([node.name])
        elif isinstance(node, ast.Assign):
            yield from _unless_private(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield from _unless_private([node.target.id])


def _unless_private(names: Iterable[str]) -> Iterator[str]:
    return (name for name in names if not name.startswith("_"))


def _dashboard(root: Path) -> dict[str, Any]:
    texts = {file: (root / file).read_text() for file in dashboard_sources(root)}
    words = {file: set(_WORD.findall(text)) for file, text in texts.items()}
    lengths = sorted(((text.count("\n"), str(file)) for file, text in texts.items()), reverse=True)
    alone = [
        f"{file}:{name}"
        for file, text in texts.items()
        for name in _EXPORT.findall(text)
        if not any(name in words[other] for other in texts if other != file)
    ]
    return {
        "files": len(texts),
        "lines": sum(lines for lines, _ in lengths),
        "longest_file": {"lines": lengths[0][0], "file": lengths[0][1]},
        "files_too_long": [file for lines, file in lengths if lines > LONGEST_FILE],
        "unused_exports": sorted(alone),
    }


def _counted(names: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in names:
        found[name] = found.get(name, 0) + 1
    return dict(sorted(found.items()))
