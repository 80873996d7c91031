"""From a valid body and its schema: the same body with one field beyond its bound, for each field that has one."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Json = Any  # whatever JSON can hold
Schema = dict[str, Any]  # Any: JSON schema
_FAR = 10**30
_LONG = "x" * 5_000


@dataclass(frozen=True)
class Beyond:
    """A body that breaks one bound: of the field at `path`."""

    path: tuple[str | int, ...]
    body: Json

    @property
    def field(self) -> str:
        """The name that the refusal has to say."""
        return str(next(part for part in reversed(self.path) if isinstance(part, str)))


class Bounds:
    """The bounds of one document of the API."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._schemas: dict[str, Schema] = document["components"]["schemas"]

    def beyond(self, schema: Schema, body: Json) -> Iterator[Beyond]:
        """`body`, which fits `schema`, made too long, too large or too many in one place after the other."""
        for path, value in self._walk(schema, body, ()):
            if path:
                yield Beyond(path, _put(body, path, value))

    def _walk(self, schema: Schema, value: Json, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[Any, ...], Json]]:
        schema = self._of(schema, value)
        yield from ((path, over) for over in _over(schema, value))
        if isinstance(value, dict):
            for name, inner in schema.get("properties", {}).items():
                if name in value:
                    yield from self._walk(inner, value[name], (*path, name))
        elif isinstance(value, list) and value and isinstance(schema.get("items"), dict):
            yield from self._walk(schema["items"], value[0], (*path, 0))

    def _of(self, schema: Schema, value: Json) -> Schema:
        """The schema itself, or that of its choices which is for such a value."""
        while "$ref" in schema:
            schema = self._schemas[schema["$ref"].rpartition("/")[2]]
        if "discriminator" in schema and isinstance(value, dict):
            told = schema["discriminator"]
            return self._of({"$ref": told["mapping"][value[told["propertyName"]]]}, value)
        choices = [self._of(inner, value) for name in ("anyOf", "oneOf") for inner in schema.get(name, ())]
        return next((choice for choice in choices if _fits(choice, value)), schema)


def _fits(schema: Schema, value: Json) -> bool:
    kinds = {"string": str, "integer": int, "number": (int, float), "array": list, "object": dict, "null": type(None)}
    kind = kinds.get(schema.get("type", ""))
    return kind is not None and isinstance(value, kind)  # type: ignore[arg-type] # a table of types and tuples of them


def _over(schema: Schema, value: Json) -> Iterator[Json]:
    kind = schema.get("type")
    if kind == "string" and "const" not in schema and "enum" not in schema and schema.get("format") != "binary":
        yield "x" * (schema["maxLength"] + 1) if "maxLength" in schema else _LONG
    elif kind in ("integer", "number"):
        yield from (schema[name] + 1 for name in ("maximum", "exclusiveMaximum") if name in schema)
        yield from (schema[name] - 1 for name in ("minimum", "exclusiveMinimum") if name in schema)
        yield _FAR
    elif kind == "array" and "maxItems" in schema and isinstance(value, list) and value:
        yield [value[0]] * (schema["maxItems"] + 1)
    elif kind == "object" and "maxProperties" in schema:
        yield {f"k{number}": 1 for number in range(schema["maxProperties"] + 1)}


def _put(body: Json, path: tuple[str | int, ...], value: Json) -> Json:
    changed = copy.deepcopy(body)
    *above, last = path
    holder = changed
    for step in above:
        holder = holder[step]
    holder[last] = value
    return changed
