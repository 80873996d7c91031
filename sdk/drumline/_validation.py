"""Arguments that cannot be what they are, and values and flags that a contract refuses, as errors of ours."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NoReturn, get_args

from pydantic import TypeAdapter, ValidationError

from drumline.contracts.problems import ProblemCode, field_of, in_words, is_key, nearest
from drumline.contracts.spec import STRATEGIES, MirroredSpec, StrategySpec
from drumline.errors import OptionError, ParameterError, UnknownParameterError


@contextmanager
def typed_errors(part: str = "") -> Iterator[None]:
    """Turns the first refusal of a contract into an OptionError that names the field and shows the value.

    `part` is where in a submission the contract stands, such as `retries`.
    """
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = field_of((part, *first["loc"]) if part else first["loc"])
        # What is wrong with several fields together names them itself, and of a wrong key the value is not shown.
        given = "" if is_key(first["loc"]) else f"={_shorten(first['input'])}"
        message = f"{name}{given}: {in_words(first)}" if name else in_words(first)
        raise OptionError(ProblemCode.BAD_PARAMETER, message, name) from None


def require_id(value: object, name: str, wanted: str) -> str:
    """The id or name as it is. Raises OptionError for None, and for whatever else is no text."""
    if not isinstance(value, str) or not value:
        refuse(name, value, f"pass {wanted}")
    return value


def require_source(source: object) -> None:
    """Raises OptionError for a program that is no path, such as the function itself."""
    if isinstance(source, str | os.PathLike):
        return
    name = getattr(source, "__name__", None)
    kind = "class" if isinstance(source, type) else "function"
    what = f"the {kind} {name}" if callable(source) and name else _shorten(source)
    message = f"source is {what}; pass the path of the Python file or directory that has the program's main(run)"
    raise OptionError(ProblemCode.BAD_PARAMETER, message, "source")


def require_parameters(parameters: object) -> None:
    """Raises OptionError unless it is a mapping of names to values that JSON has, NaN and NumPy's left out."""
    if not isinstance(parameters, Mapping):
        refuse("parameters", parameters, 'pass a dict, such as {"epochs": 5}')
    for name, value in parameters.items():
        if not isinstance(name, str):
            refuse("parameters", name, "the name of a parameter is text")
        _require_json(f"parameters.{name}", value)


def refuse(name: str, value: object, advice: str) -> NoReturn:
    """Raises OptionError naming the argument, the value and what to pass."""
    raise OptionError(ProblemCode.BAD_PARAMETER, f"{name}={_shorten(value)}: {advice}", name)


def _require_json(name: str, value: object) -> None:
    match value:
        case None | bool() | int() | float() | str():
            return
        case Mapping():
            for key, each in value.items():
                if not isinstance(key, str):
                    refuse(name, value, f"the key {_shorten(key)} is no text, as JSON wants it")
                _require_json(f"{name}.{key}", each)
        case list() | tuple():
            for index, each in enumerate(value):
                _require_json(f"{name}.{index}", each)
        case _ if hasattr(value, "tolist"):  # of NumPy or JAX
            refuse(name, value, f"{type(value).__name__} is no JSON; pass a number or list of Python's: x.tolist()")
        case _:
            refuse(name, value, f"{type(value).__name__} is no JSON; pass numbers, text, lists or dicts")


def _shorten(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


KINDS = tuple(STRATEGIES)
EXECUTORS: tuple[str, ...] = get_args(MirroredSpec.model_fields["executor"].annotation)
_ADAPTER: TypeAdapter[StrategySpec] = TypeAdapter(StrategySpec)


def parse_strategy(kind: str, options: dict[str, str]) -> StrategySpec:
    """The strategy of that kind with `options` given as text; lists as JSON.

    Raises ParameterError naming the kind, option or value that is wrong, with the nearest name or what is allowed.
    """
    if kind not in STRATEGIES:
        message = f"there is no strategy {kind!r}{_suggest(kind, KINDS)}"
        raise ParameterError(ProblemCode.UNKNOWN_STRATEGY, message, "strategy")
    known = [name for name in STRATEGIES[kind].model_fields if name != "kind"]
    for name in options:
        if name not in known:
            message = f"the strategy {kind!r} has no option {name!r}{_suggest(name, known)}"
            raise UnknownParameterError(ProblemCode.UNKNOWN_PARAMETER, message, name)
    try:
        return _ADAPTER.validate_python({"kind": kind, **{name: _value(text) for name, text in options.items()}})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"][1:]) or "strategy"
        message = f"option {name} of the strategy {kind!r}: {in_words(first)}"
        raise ParameterError(ProblemCode.BAD_PARAMETER, message, name) from None


def _value(text: str) -> object:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return text
    return value if isinstance(value, list) or value is None else text


def _suggest(name: str, known: list[str] | tuple[str, ...]) -> str:
    return nearest(name, list(known)) or _choices(known)


def _choices(known: list[str] | tuple[str, ...]) -> str:
    return f"; choose from {', '.join(known)}" if known else "; it takes none"
