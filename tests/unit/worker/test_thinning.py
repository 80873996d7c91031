"""Metrics over budget keep what matters of each second."""

from drumline_worker.shim.thinning import MAX_NAMES, Point, Thinner


def _point(name: str, step: int, value: float) -> Point:
    return Point(name, step, step, value)


def test_last_least_and_greatest_of_each_name_are_kept() -> None:
    thinner = Thinner()
    thinner.add([_point("loss", step, value) for step, value in enumerate([5.0, 1.0, 7.0, 3.0, 4.0])])
    thinner.add([_point("accuracy", 9, 0.5)])
    kept, dropped = thinner.take()
    assert [(point.name, point.value) for point in kept] == [
        ("loss", 1.0),
        ("loss", 7.0),
        ("loss", 4.0),
        ("accuracy", 0.5),
    ]
    assert dropped == 2
    assert not thinner.pending


def test_nan_is_kept_only_where_it_is_the_last_value() -> None:
    nan = float("nan")
    thinner = Thinner()
    thinner.add([_point("x", 0, nan), _point("x", 1, 2.0), _point("x", 2, nan)])
    kept, _ = thinner.take()
    assert [point.step for point in kept] == [1, 2]


def test_too_many_names_are_dropped_and_counted() -> None:
    thinner = Thinner()
    thinner.add([_point(f"name {number}", number, 1.0) for number in range(MAX_NAMES + 5)])
    kept, dropped = thinner.take()
    assert (len(kept), dropped) == (MAX_NAMES, 5)
