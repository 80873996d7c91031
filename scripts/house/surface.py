"""The public surface: what users' code, commands and settings rely on. `--write` takes a new snapshot.

Kept in tests/house/surface.json, and compared by a test: what comes, goes or changes is changed there too, on purpose.
Annotations are left out: each Python writes them in its own way.
"""

import argparse
import ast
import enum
import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import click

ROOT = Path(__file__).resolve().parents[2]
SNAPSHOT = ROOT / "tests" / "house" / "surface.json"
MODULES = (
    "drumline", "drumline.distribute", "drumline.distribute.checkpoint", "drumline.errors", "drumline.job",
    "drumline.local",
)  # fmt: skip
"""What pages and examples import, and the modules that one of them names in its `__all__`, by the name it gives."""
Surface = dict[str, dict[str, Any]]
"""Kinds of things, each a name with what its users rely on. Any: text, or a list of names."""
_OWN_TO_THIS_PROCESS = re.compile(r" at 0x[0-9a-f]+|(?<=<)class |(?<=[<' ])[a-z_]+(?:\.[a-z_]+)*\.(?=[A-Z_])")
"""Of a default's text: addresses, and in which module a class stands."""
_VARIABLE = re.compile(r"DRUMLINE_[A-Z_]*[A-Z]")


def surface(root: Path = ROOT) -> Surface:
    """Of what is installed, and of the sources below `root`."""
    return {
        "python": dict(_python()),
        "rest": dict(_rest(json.loads((root / "frontend" / "openapi.json").read_text()))),
        "command line": dict(_commands()),
        "settings": dict(_settings(root)),
    }


def differences(kept: Surface, now: Surface) -> list[str]:
    """What the product has no more, in another form, or besides: also what is new has to be kept from then on."""
    return [
        f"{kind}: {name}: {_difference(kept[kind].get(name), now[kind].get(name))}"
        for kind in kept
        for name in sorted(kept[kind].keys() | now[kind].keys())
        if kept[kind].get(name) != now[kind].get(name)
    ]


def _difference(wanted: Any, found: Any) -> str:
    if found is None:
        return f"{wanted} is gone"
    return f"{found} is new" if wanted is None else f"{wanted} is now {found}"


def _python() -> Iterator[tuple[str, Any]]:
    queue = [(name, importlib.import_module(name)) for name in MODULES]
    for name, module in queue:
        for public in _public_names(module):
            value = getattr(module, public)
            if isinstance(value, ModuleType):
                if all(value is not known for _, known in queue):
                    queue.append((f"{name}.{public}", value))
                continue
            yield f"{name}.{public}", _signature(value)
            if inspect.isclass(value):
                yield from ((f"{name}.{public}.{member}", form) for member, form in _members(value))


def _public_names(module: ModuleType) -> list[str]:
    own = getattr(module, "__all__", None)
    if own is not None:
        return sorted(own)
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    )


def _members(cls: type) -> Iterator[tuple[str, str]]:
    for name in sorted(dir(cls)):
        if not name.startswith("_") and _is_ours(cls, name):
            yield name, _signature(inspect.getattr_static(cls, name))


def _is_ours(cls: type, member: str) -> bool:
    """Not what a library's base brings."""
    return any(member in vars(base) and base.__module__.startswith("drumline") for base in cls.__mro__)


def _signature(value: Any) -> str:
    """Parameters with their defaults; of what is not called, what it is."""
    if isinstance(value, property) or inspect.isdatadescriptor(value):
        return "property"
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if isinstance(value, enum.EnumType):
        return "enum " + " ".join(sorted(value.__members__))
    if not callable(value):
        return "value"
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "callable"
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in found.parameters.values()]
    return _OWN_TO_THIS_PROCESS.sub("", str(inspect.Signature(plain)))


def _rest(described: Any) -> Iterator[tuple[str, list[str]]]:
    for path, methods in described["paths"].items():
        shared = methods.get("parameters", [])
        for method, operation in methods.items():
            if method == "parameters":
                continue
            parameters = [f"{each['in']} {each['name']}" for each in [*shared, *operation.get("parameters", [])]]
            bodies = [f"takes {kind}" for kind in operation.get("requestBody", {}).get("content", {})]
            answers = [f"answers {code}" for code in operation["responses"]]
            yield f"{method.upper()} {path}", sorted([*parameters, *bodies, *answers])
    for name, schema in described["components"]["schemas"].items():
        yield f"schema {name}", sorted(schema.get("properties", schema.get("enum", [])))


def _commands() -> Iterator[tuple[str, list[str]]]:
    (entry,) = entry_points(group="console_scripts", name="drumline")
    module = importlib.import_module(entry.module)
    (group,) = {id(each): each for each in vars(module).values() if isinstance(each, click.Group)}.values()
    yield from _command("drumline", group)


def _command(name: str, command: click.Command) -> Iterator[tuple[str, list[str]]]:
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    yield name, sorted(" ".join(each.opts) if isinstance(each, click.Option) else f"<{each.name}>" for each in shown)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            if found is not None and not found.hidden:
                yield from _command(f"{name} {each}", found)


def _settings(root: Path) -> Iterator[tuple[str, str]]:
    """Fields of every settings class, by their variables, and the variables that the library and its command read."""
    for source in ("sdk", "backend", "worker"):
        for file in sorted((root / source).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ClassDef) and any("BaseSettings" in ast.unparse(base) for base in node.bases):
                    yield from _fields(node)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _VARIABLE.fullmatch(node.value):
                    yield node.value, "variable"


def _fields(settings: ast.ClassDef) -> Iterator[tuple[str, str]]:
    found = re.search(r"env_prefix=['\"](\w+)['\"]", ast.unparse(settings))
    for node in settings.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
            if not name.startswith("_") and "ClassVar" not in ast.unparse(node.annotation):
                yield f"{found[1] if found else ''}{name.upper()}", "variable"


def main() -> int:
    """Exit code: 1 where the snapshot is not what there is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="take a new snapshot")
    options = parser.parse_args()
    now = surface()
    if options.write:
        SNAPSHOT.parent.mkdir(parents=True, exist_ok=True)
        SNAPSHOT.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
        print(f"wrote {SNAPSHOT}: " + ", ".join(f"{len(things)} of {kind}" for kind, things in now.items()))
        return 0
    found = differences(json.loads(SNAPSHOT.read_text()), now)
    print("\n".join(found), file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
