"""Which replica of a reduction stands apart: by its own value, the norm of its array, or its cosine to the result.

A figure is an outlier that is more than 3.5 standard deviations away from the median of all replicas, as the median
absolute deviation estimates these: up to half of the replicas may be odd without hiding each other. What is close all
the same is none: within a tenth of the median norm, a tenth of a cosine, a millionth of the median value.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from drumline.contracts import api
from drumline.contracts.arrays import ArraySummary

MAX_OUTLIERS = 32
LEAST_REPLICAS = 4
"""Of fewer one can't say who is the odd one."""
MOST_DEVIATIONS = 3.5
_PER_MAD = 1.4826
"""Standard deviations of normally distributed values in one median absolute deviation."""

Figures = Mapping[int, float]
"""By replica."""


def find_outliers(
    inputs: Sequence[ArraySummary], counts: Sequence[int], op: str, *, result_shape: Sequence[int]
) -> list[api.ReductionOutlier]:
    """Those whose numbers are not finite first, then by how far they are away; a replica may be one by two figures."""
    if len(inputs) < LEAST_REPLICAS:
        return []
    odd = _not_finite(inputs)
    if len(result_shape) == 0:
        found = _apart("value", _own_values(inputs, counts, op), lambda middle: 1e-6 * abs(middle))
    else:
        alike = len({part.shape for part in inputs}) == 1
        norms = {at: part.norm for at, part in enumerate(inputs) if part.norm is not None} if alike else {}
        cosines = {at: part.cosine for at, part in enumerate(inputs) if part.cosine is not None}
        found = _apart("norm", norms, lambda middle: 0.1 * middle)
        found += [one for one in _apart("cosine", cosines, lambda _: 0.1) if one.value < one.median]
    return odd + sorted(found, key=_distance, reverse=True)


def _not_finite(inputs: Sequence[ArraySummary]) -> list[api.ReductionOutlier]:
    """Where it is most replicas, none of them stands apart."""
    bad = {at: part.nan_count + part.inf_count for at, part in enumerate(inputs) if part.nan_count + part.inf_count}
    if 2 * len(bad) >= len(inputs):
        return []
    return [
        api.ReductionOutlier(replica=at, by="not_finite", value=count, median=0.0, deviations=None)
        for at, count in sorted(bad.items(), key=lambda one: -one[1])
    ]


def _own_values(inputs: Sequence[ArraySummary], counts: Sequence[int], op: str) -> Figures:
    """Each one's mean for a mean and sum for a sum, of those whose numbers are all finite."""
    return {
        at: part.mean * (count if op == "sum" else 1)
        for at, (part, count) in enumerate(zip(inputs, counts, strict=True))
        if part.mean is not None and part.nan_count + part.inf_count == 0
    }


def _apart(by: str, figures: Figures, near: Callable[[float], float]) -> list[api.ReductionOutlier]:
    if len(figures) < LEAST_REPLICAS:
        return []
    middle = median(figures.values())
    away = {replica: abs(value - middle) for replica, value in figures.items()}
    deviation = _PER_MAD * median(away.values())
    return [
        api.ReductionOutlier.model_validate(
            {
                "replica": replica,
                "by": by,
                "value": figures[replica],
                "median": middle,
                "deviations": distance / deviation if deviation else None,
            }
        )
        for replica, distance in away.items()
        if distance > max(near(middle), MOST_DEVIATIONS * deviation)
    ]


def _distance(one: api.ReductionOutlier) -> float:
    return float("inf") if one.deviations is None else one.deviations
