"""Parameters typed on a command line, as values of the types that `main` declares."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drumline.contracts.api import ProgramEntrypoint


def parse_parameters(entrypoint: "ProgramEntrypoint", texts: Mapping[str, str]) -> dict[str, Any]:
    """Texts as values; what does not fit stays text, for the check to refuse by name."""
    return {name: parse_typed_value(entrypoint, name, text) for name, text in texts.items()}


def parse_typed_value(entrypoint: "ProgramEntrypoint", name: str, text: str) -> Any:  # Any: a JSON value
    """One text as the value of the parameter `name`."""
    if takes_text(entrypoint, name):
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def takes_text(entrypoint: "ProgramEntrypoint", name: str) -> bool:
    """Whether the parameter is text, or there is none of that name."""
    kinds = {parameter.name: parameter.type for parameter in entrypoint.parameters}
    return kinds.get(name) in (None, "str")
