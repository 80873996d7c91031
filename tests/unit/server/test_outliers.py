"""Which replica of a reduction stands apart, and by what."""

import pytest

from drumline.contracts.arrays import ArraySummary
from drumline_server.telemetry.comparison import find_outliers

SCALAR: tuple[int, ...] = ()
LARGE = (2000,)


def scalars(*values: float) -> list[ArraySummary]:
    return [ArraySummary(shape=(), dtype="float32", values=(value,), mean=value) for value in values]


def arrays(*norms: float, cosines: tuple[float, ...] | None = None) -> list[ArraySummary]:
    return [
        ArraySummary(shape=LARGE, dtype="float32", norm=norm, cosine=cosine)
        for norm, cosine in zip(norms, cosines or [0.9] * len(norms), strict=True)
    ]


def found(inputs: list[ArraySummary], shape: tuple[int, ...], op: str = "mean") -> list[tuple[int, str]]:
    outliers = find_outliers(inputs, [1] * len(inputs), op, result_shape=shape)
    return [(one.replica, one.by) for one in outliers]


def test_the_replica_whose_own_value_is_far_from_the_others_is_named_with_its_distance() -> None:
    (one,) = find_outliers(scalars(1, 1.1, 0.9, 1.05, 0.95, 2.4), [1] * 6, "mean", result_shape=SCALAR)
    assert (one.replica, one.by, one.value, one.median) == (5, "value", 2.4, 1.025)
    assert one.deviations == pytest.approx((2.4 - 1.025) / (1.4826 * 0.075))


@pytest.mark.parametrize("values", [(1, 2, 3, 4), (1, 1, 50), (0.3, 0.3, 0.3, 0.30000000000000004), (1, 9, 1, 9, 1, 9)])
def test_spread_rounding_halves_and_fewer_than_four_are_no_outliers(values: tuple[float, ...]) -> None:
    assert found(scalars(*values), SCALAR) == []


def test_where_all_others_agree_there_is_no_deviation_to_measure_with() -> None:
    (one,) = find_outliers(scalars(5, 5, 5, 4, 5), [1] * 5, "mean", result_shape=SCALAR)
    assert (one.replica, one.deviations) == (3, None)


def test_up_to_half_of_the_replicas_do_not_hide_each_other() -> None:
    assert found(scalars(1, 1.01, 0.99, 1.02, 0.98, 80, 900, 7), SCALAR) == [(6, "value"), (5, "value"), (7, "value")]


def test_a_gradient_stands_apart_by_its_norm_or_by_its_direction() -> None:
    assert found(arrays(1, 1.02, 0.98, 5, 1), LARGE) == [(3, "norm")]
    assert found(arrays(1, 1, 1, 1, 1, cosines=(0.9, 0.91, -0.4, 0.89, 0.9)), LARGE) == [(2, "cosine")]


def test_a_norm_within_a_tenth_and_a_better_direction_are_none() -> None:
    assert found(arrays(1, 1.0001, 0.9999, 1.05, 1), LARGE) == []
    assert found(arrays(1, 1, 1, 1, cosines=(0.1, 0.1, 0.1, 0.99)), LARGE) == []


def test_who_puts_in_what_is_not_finite_comes_first_unless_most_do() -> None:
    def bad(count: int) -> ArraySummary:
        return ArraySummary(shape=LARGE, dtype="float32", norm=1.0, nan_count=count)

    assert found([*arrays(1, 1, 1, 70), bad(2)], LARGE) == [(4, "not_finite"), (3, "norm")]
    assert found([*arrays(1, 1), bad(1), bad(1)], LARGE) == []


def test_a_sum_of_several_elements_is_judged_by_each_replica_s_sum() -> None:
    outliers = find_outliers(scalars(1, 1, 1, 1), [2, 2, 2, 9], "sum", result_shape=SCALAR)
    assert [(one.replica, one.value) for one in outliers] == [(3, 9)]
