"""Every list, text and number that may come in has a bound: what has none is what an attacker grows."""

import pkgutil
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from drumline import contracts
from drumline.contracts.base import Contract
from drumline.contracts.spec import RunSubmit
from drumline.contracts.sweeps import Range

Schema = dict[str, Any]  # Any: JSON schema
_JSON = {
    "ResultEvent.value": "the shim and the server take at most MAX_RESULT_BYTES",
    "RunOptions.parameters.*": "FewValues",
    "RunSubmit.parameters.*": "FewValues",
    "GridSweep.parameters.*[]": "FewValues",
    "ListSweep.points[].*": "FewValues",
    "RandomSweep.parameters.*[]": "FewValues",
    "ProbeOrder.parameters.*": "what a run has",
}
"""Places of any JSON, and what bounds it there."""


_NUMBERS = frozenset(
    {
        *(f"ArraySummary.{name}" for name in ("values[]", "min", "max", "mean", "norm")),
        *("ArrayStrip.min[]", "ArrayStrip.max[]"),
        *("MetricsEvent.values[]", "ProgressEvent.steps_per_s", "ProgressEvent.examples_per_s"),
        *("HistogramValue.min", "HistogramValue.max", "TableValue.rows[][]", "SummaryEvent.numbers.*"),
        *("Range.low", "Range.high"),
    }
)
"""Places of any number that a program may log, or look for: at most what 64 bits of floating point hold."""


def _contracts() -> list[type[BaseModel]]:
    for module in pkgutil.walk_packages(contracts.__path__, f"{contracts.__name__}."):
        import_module(module.name)
    waiting, found = [Contract], set()
    while waiting:
        model = waiting.pop()
        waiting += [inner for inner in model.__subclasses__() if inner.__module__.startswith(contracts.__name__)]
        found.add(model)
    return sorted(found - {Contract}, key=lambda model: model.__name__)


def _unbounded(schema: Schema, at: str) -> Iterator[str]:
    """Places in a JSON schema that have no bound; references are followed by the test of their own model."""
    choices = [inner for name in ("anyOf", "oneOf", "allOf") for inner in schema.get(name, ())]
    for inner in choices:
        yield from _unbounded(inner, at)
    if choices or {"$ref", "enum", "const"} & schema.keys():
        return
    lack = _LACKS.get(schema.get("type", ""), _lacks_type)(schema)
    if lack and at not in _JSON and at not in _NUMBERS:
        yield f"{at}: {lack}"
    if schema.get("type") == "array":
        yield from _unbounded(schema.get("items", {}), f"{at}[]")
    values = schema.get("additionalProperties")
    if schema.get("type") == "object" and isinstance(values, dict | bool):
        yield from _unbounded(values if isinstance(values, dict) else {}, f"{at}.*")


def _lacks_type(schema: Schema) -> str:
    return "any JSON" if "type" not in schema else ""


_LACKS: dict[str, Callable[[Schema], str]] = {
    "string": lambda schema: "" if {"maxLength", "pattern", "format"} & schema.keys() else "text",
    "integer": lambda schema: "" if _has_low(schema) and _has_high(schema) else "integer",
    "number": lambda schema: "" if _has_low(schema) and _has_high(schema) else "number",
    "array": lambda schema: "" if "maxItems" in schema else "list",
    "object": lambda schema: "" if {"maxProperties", "properties"} & schema.keys() else "object",
}


def _has_low(schema: Schema) -> bool:
    return bool({"minimum", "exclusiveMinimum"} & schema.keys())


def _has_high(schema: Schema) -> bool:
    return bool({"maximum", "exclusiveMaximum"} & schema.keys())


@pytest.mark.parametrize("model", _contracts(), ids=lambda model: model.__name__)
def test_every_list_text_and_number_of_a_contract_has_a_bound(model: type[BaseModel]) -> None:
    schema = TypeAdapter(model).json_schema()
    definitions = schema.get("$defs", {})
    places = [
        place
        for owner, part in {model.__name__: schema, **definitions}.items()
        for name, field in part.get("properties", {}).items()
        for place in _unbounded(field, f"{owner}.{name}")
    ]

    assert not places


def test_the_walk_finds_what_has_no_bound() -> None:
    class Loose(Contract):
        """A contract as none may be."""

        text: str
        number: int
        many: list[int]
        named: dict[str, str]

    schema = TypeAdapter(Loose).json_schema()
    places = [place for name, field in schema["properties"].items() for place in _unbounded(field, name)]

    assert places == [
        "text: text", "number: integer", "many: list", "many[]: integer", "named: object", "named.*: text",
    ]  # fmt: skip


def _too_many(count: int) -> dict[str, object]:
    return {"value": list(range(count))}


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"parameters": _too_many(20_000)}, "parameters", "holds more than 10000 values"),
        ({"parameters": {"deep": [[0] * 200] * 100}}, "parameters", "holds more than 10000 values"),
        ({"parameters": {"huge": 10**40}}, "parameters", "more than 64 bits"),
        ({"parameters": {"n" * 201: 1}}, "parameters", "at most 200 characters"),
        ({"labels": {f"l{number}": "x" for number in range(65)}}, "labels", "65 entries; at most 64"),
        ({"job": {"strategy": {"kind": "tpu", "computation_shape": [1] * 100_000}}}, "computation_shape", "at most 4"),
        ({f"field{number}": number for number in range(100_000)}, "", "fields; at most"),
    ],
    ids=["values", "nested", "number", "name", "labels", "shape", "fields"],
)
def test_more_than_the_bound_costs_one_error_and_no_time(changes: dict[str, Any], field: str, words: str) -> None:
    job = {"name": "a", "program": {"bundle": "sha256:" + "0" * 64, "entrypoint": "a:b"}, **changes.pop("job", {})}
    body = {"job": job, **changes}
    began = time.thread_time()

    with pytest.raises(ValidationError) as refusal:
        RunSubmit.model_validate(body)

    errors = refusal.value.errors(include_url=False)
    assert time.thread_time() - began < 0.05
    (first, *others) = [error for error in errors if error["type"] != "missing"]
    assert not others
    assert words in first["msg"]
    assert field in [str(part) for part in first["loc"]] or not field


def test_a_range_wider_than_a_number_can_hold_is_refused() -> None:
    with pytest.raises(ValidationError, match="wider than a number can hold"):
        Range(low=-1e308, high=1e308)
