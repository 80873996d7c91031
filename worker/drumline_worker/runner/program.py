"""Finds the program's function in its bundle."""

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import JsonValue

Main = Callable[..., Any]  # Any: whatever a program takes and returns


class BadProgramError(Exception):
    """The bundle has no such module or function, or the function does not take what is asked of it.

    The message is for the user, and says all: where it was raised is ours.
    """


def load_main(program: Path, entrypoint: str) -> Main:
    """Imports the module from the bundle and returns the function.

    Raises BadProgramError naming what is missing; whatever the module itself raises goes through.
    """
    module_name, _, function_name = entrypoint.partition(":")
    sys.path.insert(0, str(program))
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and module_name.startswith(error.name):
            raise BadProgramError(f"the bundle has no module {error.name!r} (entrypoint {entrypoint})") from None
        raise
    file = getattr(module, "__file__", None)
    if file is None or not Path(file).resolve().is_relative_to(program.resolve()):
        raise BadProgramError(f"{module_name!r} is also an installed module; rename the file in the bundle")
    main = getattr(module, function_name, None)
    if not callable(main):
        raise BadProgramError(f"module {module_name!r} has no function {function_name!r}")
    return main  # type: ignore[no-any-return] # getattr of a module; callable() proved what can be proved


def with_defaults(main: Main, parameters: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Every parameter that the call will have, by name. Raises BadProgramError when `main` does not take them."""
    try:
        bound = inspect.signature(main).bind(None, **parameters)
    except (TypeError, ValueError) as error:
        raise BadProgramError(f"{main.__name__} can't be called with these parameters: {error}") from None
    bound.apply_defaults()
    _, *named = bound.arguments.items()
    return dict(named)
