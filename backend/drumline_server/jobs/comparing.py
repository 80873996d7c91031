"""What differs between the specifications of two versions, field by field."""

from collections.abc import Iterator

from pydantic import JsonValue

from drumline.contracts import api

_COMPARED = ("program", "strategy", "record", "checkpoint")


def changed_fields(old: api.JobVersion, new: api.JobVersion) -> tuple[api.FieldChange, ...]:
    """The fields that differ, by path; a field that one side does not have is None there."""
    before, after = _flat(old), _flat(new)
    return tuple(
        api.FieldChange(path=path, old=before.get(path), new=after.get(path))
        for path in dict.fromkeys([*before, *after])
        if before.get(path) != after.get(path)
    )


def _flat(version: api.JobVersion) -> dict[str, JsonValue]:
    content = version.model_dump(mode="json", include=set(_COMPARED))
    return dict(_leaves({part: content[part] for part in _COMPARED}, ""))


def _leaves(value: dict[str, JsonValue], prefix: str) -> Iterator[tuple[str, JsonValue]]:
    for name, item in value.items():
        if isinstance(item, dict):
            yield from _leaves(item, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", item
