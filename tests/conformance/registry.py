"""Programs by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.loader import Case

Program = Callable[[Case], dict[str, Any]]

PROGRAMS: dict[str, Program] = {}


def program(*names: str) -> Callable[[Program], Program]:
    """Registers a function from a case to what it observed, keyed as the case's ``expected``."""

    def register(function: Program) -> Program:
        for name in names:
            PROGRAMS[name] = function
        return function

    return register
