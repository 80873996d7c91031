"""From the declaration of a sweep to its points. The same declaration always gives the same points."""

import itertools
import json
import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from pydantic import JsonValue

from drumline.contracts.problems import FieldProblem, ProblemCode
from drumline.contracts.spec import MAX_PARAMETERS
from drumline.contracts.sweeps import MAX_BATCH, GridSweep, ListSweep, RandomSweep, Range, SweepSpec
from drumline_server.base.errors import DrumlineError

Point = dict[str, JsonValue]
_DRAWS_PER_RUN = 50
"""After so many draws for each run that is wanted, there are not that many different points."""
_MOST_DRAWN = 400_000
"""Values drawn in all, beyond two for each that is wanted: the search for different points ends."""
_MOST_WHOLE = 2**53
"""Beyond it floating-point numbers leave whole numbers out."""
_MOST_EXPONENT = math.log(sys.float_info.max)
_SIGNIFICANT = 6
"""Digits of a number that is drawn: legible, and finer than any sweep needs."""
_MOST_CHARACTERS = 8 * 2**20
"""Of the parameters of all runs as JSON: as much as a request may hold that names each run."""


def expand(sweep: SweepSpec, fixed: Mapping[str, JsonValue]) -> list[Point]:
    """The swept parameters of each run, in order.

    Raises DrumlineError bad_sweep: nothing to vary, a value or point twice, over 1000 runs, fewer different points than
    runs, a parameter in `fixed` too, more than runs can store.
    """
    _require_apart(sweep, fixed)
    match sweep:
        case GridSweep():
            points = _grid(sweep)
        case ListSweep():
            points = _list(sweep)
        case RandomSweep():
            points = _random(sweep)
    _require_small(points, fixed)
    return points


def swept_names(sweep: SweepSpec) -> tuple[str, ...]:
    """The parameters that the sweep sets, in its order."""
    if isinstance(sweep, ListSweep):
        return tuple(dict.fromkeys(name for point in sweep.points for name in point))
    return tuple(sweep.parameters)


def field_of(sweep: SweepSpec, name: str) -> str:
    """Where the request names the swept parameter `name`."""
    return f"sweep.points.{name}" if isinstance(sweep, ListSweep) else f"sweep.parameters.{name}"


def bad_sweep(field: str, message: str, *, hint: str = "") -> DrumlineError:
    """A refusal that names the field of the request."""
    return DrumlineError(
        ProblemCode.BAD_SWEEP,
        f"{field}: {message}.",
        hint=hint,
        errors=(FieldProblem(field=field, message=message),),
    )


def _require_apart(sweep: SweepSpec, fixed: Mapping[str, JsonValue]) -> None:
    names = swept_names(sweep)
    if len(names) > MAX_PARAMETERS:
        where = "sweep.points" if isinstance(sweep, ListSweep) else "sweep.parameters"
        raise bad_sweep(where, f"sets {len(names)} parameters; at most {MAX_PARAMETERS}")
    for name in names:
        if name in fixed:
            raise bad_sweep(
                field_of(sweep, name),
                f"{name!r} is swept, and fixed to {_format(fixed[name])} by run.parameters too",
                hint="Leave it out of one of the two.",
            )


def _require_small(points: Sequence[Point], fixed: Mapping[str, JsonValue]) -> None:
    """Each run stores its parameters: a small request must not become gigabytes."""
    size = len(points) * len(json.dumps(fixed))
    for point in points:
        size += len(json.dumps(point))
        if size > _MOST_CHARACTERS:
            raise bad_sweep(
                "sweep",
                f"the parameters of its {len(points)} runs are over {_MOST_CHARACTERS} characters together",
                hint="Put what all runs share into the program's bundle, or split the sweep.",
            )


def _grid(sweep: GridSweep) -> list[Point]:
    _require_values(sweep.parameters)
    size = math.prod(len(values) for values in sweep.parameters.values())
    if size > MAX_BATCH:
        factors = " x ".join(str(len(values)) for values in sweep.parameters.values())
        raise bad_sweep(
            "sweep.parameters",
            f"{factors} values make {size} runs; at most {MAX_BATCH}",
            hint="Take fewer values, or draw some of the points: a random sweep.",
        )
    return [
        dict(zip(sweep.parameters, values, strict=True)) for values in itertools.product(*sweep.parameters.values())
    ]


def _list(sweep: ListSweep) -> list[Point]:
    if not sweep.points:
        raise bad_sweep("sweep.points", "is empty", hint="Give at least one point, such as {'learning_rate': 0.1}.")
    twice = _first_twice(sweep.points)
    if twice:
        first, second = twice
        raise bad_sweep(f"sweep.points.{second}", f"is the same as point {first}: {_format(sweep.points[second])}")
    return [dict(point) for point in sweep.points]


def _random(sweep: RandomSweep) -> list[Point]:
    _require_values(sweep.parameters)
    there_are = math.prod(_size(space) for space in sweep.parameters.values())
    if there_are < sweep.runs:
        raise _too_few(sweep, f"there are {there_are}")
    source = random.Random(sweep.seed)
    points: dict[str, Point] = {}
    draws = min(sweep.runs * _DRAWS_PER_RUN, max(2 * sweep.runs, _MOST_DRAWN // len(sweep.parameters)))
    drawn = {name: _draw_from(source, space) for name, space in sweep.parameters.items()}
    for _ in range(draws):
        point = {name: draw() for name, draw in drawn.items()}
        points.setdefault(_canonical(point), point)
        if len(points) == sweep.runs:
            return list(points.values())
    raise _too_few(sweep, f"{len(points)} were found")


def _too_few(sweep: RandomSweep, found: str) -> DrumlineError:
    return bad_sweep(
        "sweep.runs",
        f"{sweep.runs} different points cannot be drawn; {found}",
        hint="Ask for fewer runs, or give more values.",
    )


def _size(space: Sequence[JsonValue] | Range) -> int:
    """How many different values can be drawn, at most."""
    if not isinstance(space, Range):
        return len(space)
    if space.whole:
        return max(1, math.floor(space.high) - math.ceil(space.low) + 1)
    if space.low <= 0 <= space.high:
        return MAX_BATCH
    finest = 10.0 ** (math.floor(math.log10(min(abs(space.low), abs(space.high)))) - _SIGNIFICANT + 1)
    steps = (_rounded(space.high) - _rounded(space.low)) / finest if finest > 0 else math.inf
    return round(min(MAX_BATCH - 1.0, steps)) + 1


def _rounded(value: float) -> float:
    return float(format(value, f".{_SIGNIFICANT}g"))


def _draw_from(source: random.Random, space: Sequence[JsonValue] | Range) -> Callable[[], JsonValue]:
    """What draws one value after the other: made once, as a sweep may draw hundreds of thousands."""
    if not isinstance(space, Range):
        return lambda: source.choice(space)
    bottom, top = space.low, space.high
    if space.scale == "log":
        low, high = math.log(bottom), math.log(top)
        draw: Callable[[], float] = lambda: math.exp(min(source.uniform(low, high), _MOST_EXPONENT))  # noqa: E731
    else:
        draw = partial(source.uniform, bottom, top)
    if space.whole:
        least, most = math.ceil(bottom), math.floor(top)
        return lambda: min(most, max(least, round(draw())))
    return lambda: min(top, max(bottom, _rounded(draw())))


def _require_values(parameters: Mapping[str, Sequence[JsonValue] | Range]) -> None:
    if not parameters:
        raise bad_sweep("sweep.parameters", "is empty", hint="Name at least one parameter with its values.")
    for name, values in parameters.items():
        field = f"sweep.parameters.{name}"
        if isinstance(values, Range):
            _require_whole_numbers(field, values)
            continue
        if not values:
            raise bad_sweep(field, "has no values", hint="Give at least one value, or leave the parameter out.")
        twice = _first_twice(values)
        if twice:
            raise bad_sweep(field, f"has {_format(values[twice[1]])} twice", hint="Give each value once.")


def _require_whole_numbers(field: str, space: Range) -> None:
    if not space.whole:
        return
    if max(abs(space.low), abs(space.high)) > _MOST_WHOLE:
        raise bad_sweep(field, f"goes from {space.low:g} to {space.high:g}; whole numbers lie within 2**53 of 0")
    if math.floor(space.high) < math.ceil(space.low):
        raise bad_sweep(field, f"goes from {space.low:g} to {space.high:g}; no whole number lies between")


def _first_twice(values: Sequence[JsonValue] | Sequence[Point]) -> tuple[int, int] | None:
    """The places of the first value that stands there twice."""
    seen: dict[str, int] = {}
    for place, text in enumerate(_canonicals(values)):
        if text in seen:
            return seen[text], place
        seen[text] = place
    return None


def _canonicals(values: Sequence[JsonValue] | Sequence[Point]) -> Iterator[str]:
    return (_canonical(value) for value in values)


def _canonical(value: JsonValue | Point) -> str:
    return json.dumps(value, sort_keys=True)


def _format(value: JsonValue | Point) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
