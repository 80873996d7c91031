"""What the code defines, by which pages are checked: modules and their names, files, every word of the sources."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_PLANNED = ROOT / "docs" / "plan.md"
"""Names what is to come."""
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page != _PLANNED),
]
_SOURCES = {"sdk": "sdk", "backend": "backend", "worker": "worker", "scripts": "", "tests": "", "examples": ""}
"""Folders with Python, and what their modules' names begin below."""
_PLAIN = (
    "*.ts",
    "*.tsx",
    "*.mjs",
    "*.toml",
    "*.yml",
    "*.sh",
    "*.json",
    "*.in",
    "Makefile",
    "Dockerfile",
    ".gitignore",
    ".npmrc",
)
_MADE = {"node_modules", "dist", "build", "__pycache__", "test-results"}
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(slots=True)
class Module:
    """What one file of Python defines and imports: `Class.method` and `function.inner` by their dotted names."""

    functions: set[str] = field(default_factory=set)
    others: set[str] = field(default_factory=set)

    def has(self, name: str) -> bool:
        """As it stands, or in a class whose object the name is taken of."""
        return name in self.functions | self.others or any(
            each.endswith(f".{name}") for each in self.functions | self.others
        )


@dataclass(slots=True)
class Code:
    """Everything that pages may name."""

    modules: dict[str, Module] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)
    words: set[str] = field(default_factory=set)
    text: str = ""

    def modules_called(self, tail: str) -> list[Module]:
        """Modules whose dotted name ends like this."""
        return [each for name, each in self.modules.items() if f".{name}".endswith(f".{tail}")]

    def finds(self, dotted: str) -> bool:
        """A module, or what one defines, by the end of its dotted name."""
        parts = dotted.split(".")
        for count in range(len(parts), 0, -1):
            rest = ".".join(parts[count:])
            found = self.modules_called(".".join(parts[:count]))
            if found and (not rest or any(each.has(rest) for each in found)):
                return True
        return any(dotted in each.functions | each.others for each in self.modules.values())

    def finds_function(self, dotted: str) -> bool:
        """A function or method by the end of its dotted name."""
        return any(
            f".{module}.{function}".endswith(f".{dotted}")
            for module, each in self.modules.items()
            for function in each.functions
        )

    def finds_file(self, path: str) -> bool:
        """By the end of its path; a folder with or without its stroke."""
        return any(f"/{each}".endswith(f"/{path.rstrip('/')}") for each in self.files)


@cache
def read_code() -> Code:
    """Of this checkout; read once in a process."""
    code = Code()
    texts: list[str] = []
    for path in _walk(ROOT):
        name = path.relative_to(ROOT).as_posix()
        code.files.update([name, *(each.as_posix() for each in Path(name).parents if each != Path())])
        code.words.update(_WORD.findall(name))
        if path.suffix == ".py" and name.split("/")[0] in {*_SOURCES, "migrations"}:
            texts.append(path.read_text())
            tree = ast.parse(texts[-1])
            code.modules[_module_of(name)] = _definitions(tree)
            code.words.update(_words_of(tree))
        elif any(path.match(pattern) for pattern in _PLAIN):
            texts.append(path.read_text())
            code.words.update(_WORD.findall(texts[-1]))
    code.text = "".join(texts)
    return code


def _walk(folder: Path) -> Iterator[Path]:
    for each in sorted(folder.iterdir()):
        if each.is_dir() and each.name not in _MADE and (not each.name.startswith(".") or each.name == ".ci"):
            yield from _walk(each)
        elif each.is_file():
            yield each


def _module_of(name: str) -> str:
    folder, _, rest = name.partition("/")
    kept = rest if _SOURCES.get(folder) else name
    return kept.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _definitions(tree: ast.Module) -> Module:
    module = Module()
    _define(module, "", tree.body)
    return module


def _define(module: Module, prefix: str, body: list[ast.stmt]) -> None:
    for each in body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            module.functions.add(prefix + each.name)
            _define(module, f"{prefix}{each.name}.", each.body)
            module.others.update(f"{prefix.split('.')[0]}.{name}" for name in _attributes_of_self(each) if prefix)
        elif isinstance(each, ast.ClassDef):
            module.others.add(prefix + each.name)
            _define(module, f"{prefix}{each.name}.", each.body)
        elif isinstance(each, ast.Import | ast.ImportFrom):
            module.others.update(prefix + (name.asname or name.name) for name in each.names)
        elif isinstance(each, ast.Assign | ast.AnnAssign):
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            names = [name for one in targets for name in ast.walk(one) if isinstance(name, ast.Name)]
            module.others.update(prefix + name.id for name in names)
        else:
            for block in ("body", "orelse", "finalbody"):
                _define(module, prefix, getattr(each, block, []))


def _attributes_of_self(function: ast.AST) -> Iterator[str]:
    for each in ast.walk(function):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and isinstance(each.value, ast.Name):
            yield each.attr


def _words_of(tree: ast.Module) -> Iterator[str]:
    """Names, and words of strings that are no docstrings."""
    nodes = list(ast.walk(tree))
    prose = {id(each.value) for each in nodes if isinstance(each, ast.Expr)}
    for each in nodes:
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and id(each) not in prose:
            yield from _WORD.findall(each.value)
        for attribute in ("id", "attr", "arg", "name", "module"):
            if isinstance(value := getattr(each, attribute, None), str):
                yield from value.split(".")
