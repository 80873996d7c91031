"""Reads files of the golden schema."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Case:
    """One observation: a program, what went in, what came out."""

    id: str
    category: str
    program: str
    kind: str
    num_replicas: int
    inputs: dict[str, Any]
    expected: dict[str, Any]
    quirk: str | None
    rtol: float | None


def load(path: Path, categories: Iterable[str] | None = None) -> list[Case]:
    """The cases of a file, of these categories only if any are given. ValueError for another schema or category."""
    try:
        document = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is no JSON: {error}") from error
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version != SCHEMA_VERSION:
        raise ValueError(f"{path}: schema_version {version!r}, expected {SCHEMA_VERSION}")
    listed = document.get("cases")
    if not isinstance(listed, list):
        raise ValueError(f"{path}: cases is {listed!r:.60}, expected a list of cases")
    cases = [_checked(path, position, raw) for position, raw in enumerate(listed)]
    if categories is None:
        return cases
    wanted, present = set(categories), {case.category for case in cases}
    if wanted - present:
        raise ValueError(
            f"{path} has no category {', '.join(sorted(wanted - present))}; it has {', '.join(sorted(present))}"
        )
    return [case for case in cases if case.category in wanted]


def _checked(path: Path, position: int, raw: Any) -> Case:
    try:
        return _case(raw)
    except (LookupError, TypeError) as error:
        name = raw.get("id", position) if isinstance(raw, dict) else position
        raise ValueError(f"{path}: case {name} is none of the schema: {error!r}") from error


def _case(raw: dict[str, Any]) -> Case:
    return Case(
        id=raw["id"],
        category=raw["category"],
        program=raw["program"],
        kind=raw["strategy"]["kind"],
        num_replicas=raw["strategy"]["num_replicas"],
        inputs=raw["inputs"],
        expected=raw["expected"],
        quirk=raw.get("quirk"),
        rtol=raw.get("rtol"),
    )
