"""Reads what cases say in words: the formulas of a rule, the name of an accumulation."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

_ACCUMULATIONS: dict[str, Callable[[Any], Any]] = {
    "max": lambda stacked: stacked.max(0),
    "min": lambda stacked: stacked.min(0),
    "prod": lambda stacked: stacked.prod(0),
    "mul": lambda stacked: stacked.prod(0),
    "mean": lambda stacked: stacked.mean(0),
    "average": lambda stacked: stacked.mean(0),
    "first": lambda stacked: stacked[0],
    "last": lambda stacked: stacked[-1],
    "sum": lambda stacked: stacked.sum(0),
    "add": lambda stacked: stacked.sum(0),
}

_FORMULA = r"(?P<formula>\[[^;a-qs-z]*\]|[-+*().\dr ]*[\dr)])"


def accumulation(text: str) -> Callable[[Sequence[Any]], Any]:
    """A function of the list of values, by the first word that names one: "max", "reduce_prod", "add_n"."""
    for word in re.findall("[a-z]+", text.lower()):
        for name, function in _ACCUMULATIONS.items():
            if word.startswith(name):
                return lambda values: function(jnp.stack(list(values)))
    raise ValueError(f"{text!r} names no accumulation; known are {', '.join(_ACCUMULATIONS)}")


def formula(rule: str, *words: str) -> str | None:
    """The formula in ``r`` that follows one of ``words`` in a rule such as "value 2r+2 at index r"; None without."""
    for word in words:
        found = re.search(rf"\b{word}\b\s*(?:float\d+|int\d+|of|is)?\s*[=:(]?\s*{_FORMULA}", rule)
        if found:
            return re.sub(r"(\d)\s*r", r"\1*r", found["formula"]).strip()
    return None


def evaluated(expression: str, replica: Any) -> Any:
    """The formula's numbers for ``replica``, nested lists as an array."""
    return jnp.asarray(eval(compile(expression, "<rule>", "eval"), {"__builtins__": {}}, {"r": replica}))
