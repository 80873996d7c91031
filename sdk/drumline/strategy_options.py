"""From flags to a StrategySpec: `--strategy mirrored --strategy-option executor=mpmd`."""

import json
from typing import get_args

from pydantic import BaseModel, TypeAdapter, ValidationError

from drumline.contracts.problems import ProblemCode
from drumline.contracts.spec import CentralStorageSpec, MirroredSpec, OneDeviceSpec, StrategySpec, TpuSpec
from drumline.contracts.suggestions import in_words, nearest
from drumline.errors import ParameterError, UnknownParameterError

_SPECS: dict[str, type[BaseModel]] = {
    "mirrored": MirroredSpec,
    "central_storage": CentralStorageSpec,
    "tpu": TpuSpec,
    "one_device": OneDeviceSpec,
}
KINDS = tuple(_SPECS)
EXECUTORS: tuple[str, ...] = get_args(MirroredSpec.model_fields["executor"].annotation)
_ADAPTER: TypeAdapter[StrategySpec] = TypeAdapter(StrategySpec)


def parse_strategy(kind: str, options: dict[str, str]) -> StrategySpec:
    """The strategy of that kind with `options` given as text; lists as JSON.

    Raises ParameterError naming the kind, option or value that is wrong, with the nearest name or what is allowed.
    """
    if kind not in _SPECS:
        message = f"there is no strategy {kind!r}{_suggest(kind, KINDS)}"
        raise ParameterError(ProblemCode.UNKNOWN_STRATEGY, message, "strategy")
    known = [name for name in _SPECS[kind].model_fields if name != "kind"]
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
