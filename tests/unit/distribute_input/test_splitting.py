import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.distribute.input.splitting import (
    batch_sizes_for_worker,
    cycle_sizes,
    cycled_steps,
    even_sizes,
    even_steps,
)

batches = st.lists(st.integers(0, 40), max_size=12)
replicas = st.integers(1, 9)


def reference_rule_a(row_counts: list[int], n: int) -> list[tuple[int, ...]]:
    steps = []
    for b in row_counts:
        chunk = (b + n - 1) // n
        owner = [row // chunk for row in range(b)] if chunk else []
        if owner:
            steps.append(tuple(owner.count(i) for i in range(n)))
    return steps


def reference_rule_b(row_counts: list[int], g: int, n: int) -> list[tuple[int, ...]]:
    sizes = [g // n + (1 if i < g % n else 0) for i in range(n)]
    owners = [i for i in range(n) for _ in range(sizes[i])]
    total = sum(row_counts)
    steps = []
    for start in range(0, total, g):
        given_out = owners[: min(g, total - start)]
        steps.append(tuple(given_out.count(i) for i in range(n)))
    return steps


@given(batches, replicas)
def test_rule_a_agrees_with_the_reference(row_counts: list[int], n: int) -> None:
    assert list(even_steps(row_counts, n)) == reference_rule_a(row_counts, n)


@given(batches, st.integers(1, 30), replicas)
def test_rule_b_agrees_with_the_reference(row_counts: list[int], g: int, n: int) -> None:
    assert list(cycled_steps(row_counts, g, n)) == reference_rule_b(row_counts, g, n)


@given(st.integers(0, 200), replicas)
def test_both_rules_give_out_every_row_of_a_batch_in_order_of_replicas(rows: int, n: int) -> None:
    assert sum(even_sizes(rows, n)) == sum(cycle_sizes(rows, n)) == rows
    assert max(cycle_sizes(rows, n)) - min(cycle_sizes(rows, n)) <= 1
    assert list(even_sizes(rows, n)) == sorted(even_sizes(rows, n), reverse=True)


@given(st.integers(0, 60), st.integers(1, 5), st.integers(1, 5))
def test_every_global_step_of_several_workers_uses_exactly_the_global_batch(
    g: int, workers: int, per_worker: int
) -> None:
    tables = [batch_sizes_for_worker(g, workers, per_worker, i) for i in range(workers)]
    for step in range(workers):
        own = slice(step * per_worker, (step + 1) * per_worker)
        assert sum(sum(table[own]) for table in tables) == g


@pytest.mark.parametrize(
    ("arguments", "text"),
    [((-1, 1, 1, 0), "-1 is negative"), ((4, 0, 1, 0), "0 workers"), ((4, 2, 1, 2), "worker index 2 is not in 0..1")],
)
def test_impossible_worker_layouts_are_refused(arguments: tuple[int, int, int, int], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        batch_sizes_for_worker(*arguments)


def test_a_cycle_without_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="global batch 0 holds no rows"):
        list(cycled_steps([3], 0, 2))
