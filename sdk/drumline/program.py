"""Reads what a program offers from its source, by `ast` alone: nothing of it is imported or run.

An entrypoint is a public function at the top of a module whose first parameter is named `run`; its other parameters are
the program's parameters, with types and defaults as the signature declares them.
"""

import ast
import difflib
import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, Self, cast

from pydantic import JsonValue

from drumline import bundle
from drumline.contracts.api import ProgramEntrypoint, ProgramParameter
from drumline.contracts.base import make_storable, unstorable
from drumline.contracts.problems import ProblemCode
from drumline.contracts.spec import MAX_PARAMETERS
from drumline.errors import (
    BadParameterError,
    EntrypointNotFoundError,
    MissingParameterError,
    ProgramError,
    ProgramSyntaxError,
    UnknownParameterError,
)

MAX_MODULE_BYTES = 2**20
MAX_SOURCE_BYTES = 8 * 2**20
"""Of all modules that may hold an entrypoint. Parsing takes about a hundred times this much memory at worst."""
MAX_ENTRYPOINTS = 200
MAX_OFFERED_CHARACTERS = 2**18
"""Of all entrypoints as JSON: whoever submits a run has them read."""
MAX_DEFAULT_CHARACTERS = 4_096
"""Of a default as JSON; a longer one is shown as one that only running the program could tell."""
_MAX_NAME = 200
_MAX_SUMMARY = 300
RUN_PARAMETER = "run"

ItemType = Literal["int", "float", "str", "bool", "json"]
ParameterType = ItemType | Literal["list"]
_TYPES: dict[str, ItemType] = {"int": "int", "float": "float", "str": "str", "bool": "bool"}
_LISTS = frozenset({"list", "List", "Sequence", "tuple", "Tuple"})
"""Annotations that JSON lists are for."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a parameter takes: one value, or a list of `items`."""

    type: ParameterType
    items: ItemType | None = None


@dataclass(frozen=True, slots=True)
class PackedProgram:
    """A program on disk, packed and looked into once, as `Client.submit` takes it in the place of its path."""

    source: Path
    packed: bytes
    """The bundle."""
    entrypoints: Sequence[ProgramEntrypoint]

    @classmethod
    def of(cls, source: str | Path) -> Self:
        """Packs a file or directory. Raises BundleError, ProgramError."""
        packed = bundle.pack(source)
        return cls(Path(source), packed, inspect(packed))


def inspect(
    source: bundle.ArchiveSource, tell: Callable[[str], None] = lambda filename: None
) -> list[ProgramEntrypoint]:
    """The entrypoints of a bundle, `main` and shallow modules first; empty where it has none.

    `tell` hears the name of each file before it is parsed.
    Raises BundleError for a bad bundle, ProgramError for too much source or too many entrypoints, ProgramSyntaxError if
    the bundle has no entrypoint and a module that cannot be parsed.
    """
    found: list[ProgramEntrypoint] = []
    size = 0
    unread: ProgramError | None = None
    for entry, module in _modules(bundle.check(source)):
        tell(entry.name)
        try:
            offered = entrypoints(_source(source, entry), module, entry.name)
        except ProgramError as error:
            unread = unread or error
            continue
        found += offered
        size += sum(len(entrypoint.model_dump_json()) for entrypoint in offered)
        _require_few(found, size)
    if unread and not found:
        raise unread
    return sorted(found, key=_rank)


def _require_few(found: Sequence[ProgramEntrypoint], size: int) -> None:
    if len(found) > MAX_ENTRYPOINTS:
        flaw = f"has over {MAX_ENTRYPOINTS} entrypoints"
    elif size > MAX_OFFERED_CHARACTERS:
        flaw = f"has entrypoints whose parameters take over {MAX_OFFERED_CHARACTERS} characters to list"
    else:
        return
    message = f"the bundle {flaw}; begin the names of helpers with an underscore"
    raise ProgramError(ProblemCode.BAD_BUNDLE, message)


def entrypoints(text: bytes, module: str, filename: str) -> list[ProgramEntrypoint]:
    """The entrypoints of one module's source, in its order. Raises ProgramSyntaxError naming file and line."""
    functions = {node.name: node for node in _parse(text, filename).body if isinstance(node, ast.FunctionDef)}
    return [
        _entrypoint(module, function)
        for function in functions.values()
        if _is_entrypoint(function) and len(f"{module}:{function.name}") <= _MAX_NAME
    ]


def find(offers: Sequence[ProgramEntrypoint], wanted: str | None) -> ProgramEntrypoint:
    """The entrypoint named `wanted` (`module:function`); the only one, or the one called `main`, if None.

    Raises EntrypointNotFoundError naming what there is.
    """
    names = [offered.entrypoint for offered in offers]
    code = ProblemCode.ENTRYPOINT_NOT_FOUND
    if not names:
        raise EntrypointNotFoundError(
            code, "the program has no entrypoint: define a function at the top of a module, `def main(run, *, ...):`"
        )
    if wanted is None:
        mains = [offered for offered in offers if offered.entrypoint.endswith(":main")]
        if len(mains) == 1 or len(names) == 1:
            return (mains or offers)[0]
        raise EntrypointNotFoundError(code, f"the program has several entrypoints: name one of {_list_names(names)}")
    for offered in offers:
        if offered.entrypoint == wanted:
            return offered
    raise EntrypointNotFoundError(code, f"the program has no entrypoint {wanted!r}; it has {_list_names(names)}")


def check_parameters(entrypoint: ProgramEntrypoint, parameters: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The given parameters as `main` takes them (a whole number for a float becomes one); defaults are not filled in.

    Raises UnknownParameterError with the nearest name, MissingParameterError or BadParameterError.
    """
    offered = {parameter.name: parameter for parameter in entrypoint.parameters}
    for name in parameters:
        if name not in offered:
            raise UnknownParameterError(ProblemCode.UNKNOWN_PARAMETER, _unknown(entrypoint, name, list(offered)), name)
    for parameter in entrypoint.parameters:
        if parameter.required and parameter.name not in parameters:
            message = f"{entrypoint.entrypoint} needs the parameter {parameter.name!r} ({parameter.type})"
            raise MissingParameterError(ProblemCode.MISSING_PARAMETER, message, parameter.name)
    return {name: _fit(offered[name], value) for name, value in parameters.items()}


def known_defaults(entrypoint: ProgramEntrypoint) -> dict[str, JsonValue]:
    """What `main` takes for parameters that are left out, as far as its source tells.

    A default of None is not among them: that is also how one reads that only running the program could tell.
    """
    return {each.name: each.default for each in entrypoint.parameters if each.default is not None}


def check_batch_parameter(entrypoint: ProgramEntrypoint, parameters: Mapping[str, JsonValue], name: str) -> None:
    """Whether larger values of the parameter `name` can be tried, with the given `parameters`.

    What the program takes where it is left out may be for running it to tell. Raises UnknownParameterError with the
    nearest name, BadParameterError.
    """
    offered = next((parameter for parameter in entrypoint.parameters if parameter.name == name), None)
    if offered is None:
        known = [parameter.name for parameter in entrypoint.parameters]
        raise UnknownParameterError(ProblemCode.UNKNOWN_PARAMETER, _unknown(entrypoint, name, known), name)
    value = parameters.get(name, offered.default)
    if value is None and name not in parameters and offered.type in ("int", "json"):
        return
    if not _is_of_type("int", value) or cast(int, value) < 1:
        message = (
            f"the batch parameter {name!r} is {_shorten(value)}: to look for the largest that fits, it must be a whole "
            f"number from 1; name another parameter, or give this one such a value"
        )
        raise BadParameterError(ProblemCode.BAD_PARAMETER, message, name)


def _modules(entries: list[bundle.Entry]) -> Iterator[tuple[bundle.Entry, str]]:
    """Python files that can be imported, with their module names; ProgramError where there is too much of it."""
    total = 0
    for entry in entries:
        path = PurePosixPath(entry.name)
        parts = path.with_suffix("").parts
        if entry.is_directory or path.suffix != ".py" or not all(part.isidentifier() for part in parts):
            continue
        total += min(entry.stated_bytes, MAX_MODULE_BYTES)
        if total > MAX_SOURCE_BYTES:
            message = f"the bundle has over {MAX_SOURCE_BYTES} bytes of Python; leave packages out by .drumlineignore"
            raise ProgramError(ProblemCode.BAD_BUNDLE, message)
        yield entry, ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _source(source: bundle.ArchiveSource, entry: bundle.Entry) -> bytes:
    """The module's text; nothing if it cannot hold an entrypoint, so that large packages cost no parsing."""
    if entry.stated_bytes > MAX_MODULE_BYTES:
        message = (
            f"{entry.name} has {entry.stated_bytes} bytes; a module with an entrypoint has at most {MAX_MODULE_BYTES}"
        )
        raise ProgramError(ProblemCode.BAD_BUNDLE, message)
    text = bundle.read(source, entry, MAX_MODULE_BYTES)
    return text if b"def " in text and RUN_PARAMETER.encode() in text else b""


def _parse(text: bytes, filename: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text, filename)
    except SyntaxError as error:
        message = f"{filename}, line {error.lineno or 1}: {error.msg}"
    except ValueError:
        message = f"{filename} cannot be parsed: it holds a NUL byte"
    except (RecursionError, MemoryError):  # the parser says either of what is nested too deeply
        message = (
            f"{filename} is too much to read: it is nested too deeply, or takes too much memory; "
            "keep generated code and data out of Python source, or leave the file out by .drumlineignore"
        )
    raise ProgramSyntaxError(ProblemCode.BAD_BUNDLE, message)


def _is_entrypoint(function: ast.FunctionDef) -> bool:
    positional = [*function.args.posonlyargs, *function.args.args]
    if function.name.startswith("_") or not positional or positional[0].arg != RUN_PARAMETER:
        return False
    unnameable = len(function.args.posonlyargs) - 1
    return unnameable <= 0 or len(function.args.defaults) >= len(positional) - 1


def _entrypoint(module: str, function: ast.FunctionDef) -> ProgramEntrypoint:
    summary = str(make_storable((ast.get_docstring(function) or "").strip().partition("\n")[0]))[:_MAX_SUMMARY]
    parameters = tuple(_parameters(function.args))
    if len(parameters) > MAX_PARAMETERS or any(len(parameter.name) > _MAX_NAME for parameter in parameters):
        message = (
            f"{module}:{function.name[:80]} has {len(parameters)} parameters; at most {MAX_PARAMETERS}, "
            f"with names of at most {_MAX_NAME} characters"
        )
        raise ProgramError(ProblemCode.BAD_BUNDLE, message)
    return ProgramEntrypoint(entrypoint=f"{module}:{function.name}", summary=summary, parameters=parameters)


def _parameters(arguments: ast.arguments) -> Iterator[ProgramParameter]:
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    by_keyword = list(zip(positional, defaults, strict=True))[max(1, len(arguments.posonlyargs)) :]
    for argument, default in [*by_keyword, *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]:
        value = _literal(default)
        kind = _annotated_kind(argument.annotation) if argument.annotation else _kind_of(value)
        yield ProgramParameter(
            name=argument.arg, type=kind.type, items=kind.items, required=default is None, default=value
        )


def _literal(expression: ast.expr | None) -> JsonValue:
    """The default as JSON; None where only running the program could tell it, or no store can hold it."""
    if expression is None:
        return None
    try:
        value = ast.literal_eval(expression)
        text = json.dumps(value, allow_nan=False)
        plain = cast(JsonValue, json.loads(text))
    except (ValueError, TypeError, RecursionError, MemoryError):
        return None
    return None if len(text) > MAX_DEFAULT_CHARACTERS or unstorable(plain) else plain


def _kind_of(value: JsonValue) -> _Kind:
    """What a default without an annotation says; what its list holds may be anything."""
    return _Kind("list", "json") if isinstance(value, list) else _Kind(_TYPES.get(type(value).__name__, "json"))


def _annotated_kind(annotation: ast.expr) -> _Kind:
    """What a form can offer for `int`, `"int"`, `int | None`, `Optional[int]`, `list[int]`; `json` for any other."""
    match annotation:
        case ast.Constant(value=str(text)):
            return _quoted_kind(text)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return _Kind("list", "json") if name in _LISTS else _Kind(_TYPES.get(name, "json"))
        case ast.BinOp(left=left, op=ast.BitOr(), right=ast.Constant(value=None)):
            return _annotated_kind(left)
        case ast.Subscript(value=ast.Name(id="Optional") | ast.Attribute(attr="Optional"), slice=inner):
            return _annotated_kind(inner)
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=inner) if name in _LISTS:
            return _Kind("list", _item_type(inner))
    return _Kind("json")


def _quoted_kind(text: str) -> _Kind:
    try:
        inner = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _Kind("json")
    return _Kind("json") if isinstance(inner, ast.Constant) else _annotated_kind(inner)


def _item_type(inner: ast.expr) -> ItemType:
    """What the items of a list are: `int` in `list[int]`, `tuple[int, ...]` and `tuple[int, int]`."""
    parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    names = {part.id if isinstance(part, ast.Name) else "" for part in parts if not _is_ellipsis(part)}
    return _TYPES.get(names.pop(), "json") if len(names) == 1 else "json"


def _is_ellipsis(part: ast.expr) -> bool:
    return isinstance(part, ast.Constant) and part.value is ...


def _rank(offered: ProgramEntrypoint) -> tuple[int, bool, str]:
    module, _, function = offered.entrypoint.partition(":")
    return module.count("."), function != "main", offered.entrypoint


def _unknown(entrypoint: ProgramEntrypoint, name: str, offered: list[str]) -> str:
    near = difflib.get_close_matches(name, offered, n=1) if len(name) <= _MAX_NAME else []
    if near:
        return f"{entrypoint.entrypoint} has no parameter {name!r}; did you mean {near[0]!r}?"
    return f"{entrypoint.entrypoint} has no parameter {name!r}; it has {_list_names(offered) or 'none'}"


def _list_names(names: list[str]) -> str:
    shown = ", ".join(names[:10])
    return f"{shown} and {len(names) - 10} more" if len(names) > 10 else shown


def _fit(parameter: ProgramParameter, value: JsonValue) -> JsonValue:
    if value is None and not parameter.required:
        return None
    if parameter.type == "list":
        return _fit_list(parameter, value)
    return _fit_value(f"parameter {parameter.name!r}", parameter.type, value, parameter.name)


def _fit_list(parameter: ProgramParameter, value: JsonValue) -> JsonValue:
    items = parameter.items or "json"
    if not isinstance(value, list):
        message = f"parameter {parameter.name!r} takes a list of {_PLURAL[items]}, not {_shorten(value)}"
        raise BadParameterError(ProblemCode.BAD_PARAMETER, message, parameter.name)
    return [
        _fit_value(f"item {place} of parameter {parameter.name!r}", items, item, parameter.name)
        for place, item in enumerate(value)
    ]


def _fit_value(what: str, kind: ItemType, value: JsonValue, name: str) -> JsonValue:
    if kind == "float" and isinstance(value, int) and not isinstance(value, bool) and _fits_float(value):
        return float(value)
    if not _is_of_type(kind, value):
        message = f"{what} takes {_WANTED[kind]}, not {_shorten(value)}"
        raise BadParameterError(ProblemCode.BAD_PARAMETER, message, name)
    return value


def _shorten(value: JsonValue) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _fits_float(number: int) -> bool:
    return abs(number) <= sys.float_info.max


_PLURAL: dict[ItemType, str] = {
    "int": "whole numbers, such as [64, 32]",
    "float": "numbers, such as [0.5, 1.0]",
    "str": 'texts, such as ["a", "b"]',
    "bool": "true and false",
    "json": "values, such as [1, 2]",
}
_WANTED: dict[ItemType, str] = {
    "int": "a whole number",
    "float": "a finite number",
    "str": "text",
    "bool": "true or false",
    "json": "a JSON value",
}


def _is_of_type(kind: ItemType, value: Any) -> bool:  # Any: a JSON value that isinstance tells apart
    match kind:
        case "int":
            return isinstance(value, int) and not isinstance(value, bool)
        case "float":
            return isinstance(value, float) and math.isfinite(value)
        case "str":
            return isinstance(value, str)
        case "bool":
            return isinstance(value, bool)
    return True
