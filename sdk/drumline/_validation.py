"""Arguments that cannot be what they are, and values that a contract refuses, as errors of ours."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NoReturn

from pydantic import ValidationError

from drumline.contracts.problems import ProblemCode
from drumline.contracts.suggestions import in_words
from drumline.errors import OptionError


@contextmanager
def typed_errors(part: str = "") -> Iterator[None]:
    """Turns the first refusal of a contract into an OptionError that names the field and shows the value.

    `part` is where in a submission the contract stands, such as `retries`.
    """
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(step) for step in ((part, *first["loc"]) if part else first["loc"]))
        # What is wrong with several fields together names them itself.
        message = f"{name}={_shorten(first['input'])}: {in_words(first)}" if name else in_words(first)
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
