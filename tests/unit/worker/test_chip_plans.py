"""The largest batch that fits is bisected, a compiled plan is kept by all that it depends on."""

import asyncio
from pathlib import Path

import pytest

from drumline.contracts.chips import BatchSearch, ChipPlan, ChipProgram
from drumline.contracts.plans import ProbedProgram, ProbeOrder
from drumline.contracts.spec import MirroredSpec
from drumline_worker.agent.chip_plans import KeptPlans, key_of, search_batch

DEVICES = 8


def program_of(value: int, *, fits: bool) -> ChipProgram:
    return ChipProgram(
        first_call=0,
        rows_per_replica=value // DEVICES,
        fits=fits,
        gross=not fits,
        argument_bytes=value,
        needed_bytes=value,
        memory=None,
        largest=(),
        exchanges=(),
        exchange_count=0,
        flops=None,
        bytes_accessed=None,
        optimal_s=None,
        message="",
        seconds=0.1,
    )


def plan_of(value: int, *, limit: int) -> ProbedProgram:
    """What a program with this batch would be told by a chip that holds at most ``limit``."""
    fits = value <= limit
    chips = ChipPlan(
        slice="v5e:2x4",
        kind="TPU v5 lite",
        devices=DEVICES,
        hosts=2,
        compiler="libtpu 0",
        available_bytes=limit,
        programs=(program_of(value, fits=fits),),
        fits=fits,
        stopped=None,
        batch=BatchSearch(parameter="batch", value=value),
    )
    return ProbedProgram(
        strategy="MirroredStrategy",
        executor="spmd",
        steps=1,
        ended=True,
        variables=(),
        collectives=(),
        batches=(),
        inputs=(),
        memory=(),
        warnings=(),
        seconds=1.0,
        chips=chips,
    )


def search(start: int, *, limit: int, unplannable: int = 2**60) -> tuple[BatchSearch, list[int]]:
    tried: list[int] = []

    async def compile_with(value: int) -> ProbedProgram | None:
        tried.append(value)
        return None if value >= unplannable else plan_of(value, limit=limit)

    async def tell(text: str) -> None:
        assert "batch=" in text

    found = asyncio.run(search_batch(plan_of(start, limit=limit), compile_with, tell))
    assert found.chips is not None
    assert found.chips.batch is not None
    return found.chips.batch, tried


@pytest.mark.parametrize(("start", "limit"), [(64, 1000), (4096, 1000), (8, 8), (64, 64)])
def test_the_largest_batch_is_bisected_in_whole_rows_for_each_replica(start: int, limit: int) -> None:
    batch, tried = search(start, limit=limit)
    assert (batch.largest, batch.too_large) == (limit // DEVICES * DEVICES, limit // DEVICES * DEVICES + DEVICES)
    assert all(value % DEVICES == 0 for value in tried)
    assert batch.tries == len(tried) + 1


def test_a_batch_that_does_not_divide_is_searched_one_by_one() -> None:
    batch, _ = search(30, limit=101)
    assert (batch.largest, batch.too_large) == (101, 102)


def test_nothing_fits_and_the_smallest_that_was_tried_is_told() -> None:
    batch, _ = search(64, limit=3)
    assert (batch.largest, batch.too_large) == (None, DEVICES)


def test_a_search_that_can_go_no_further_says_why() -> None:
    batch, _ = search(64, limit=10**9, unplannable=512)
    assert (batch.largest, batch.too_large) == (256, None)
    assert "512 could not be planned" in batch.ended


def order(**changed: object) -> ProbeOrder:
    whole = {
        "plan": "pln_01M850YG1BFS88XCEQ1GRE3HWQ",
        "bundle": f"sha256:{'0' * 64}",
        "entrypoint": "program:main",
        "strategy": MirroredSpec(),
        "parameters": {"batch": 8},
        "replicas": 1,
        "devices_per_replica": 1,
        "platform": "cpu",
        "steps": 16,
        "limit_s": 600.0,
        "on": "v5e:4x4",
    }
    return ProbeOrder.model_validate({**whole, **changed})


def test_a_plan_is_kept_by_program_slice_and_compiler(tmp_path: Path) -> None:
    keys = {
        key_of(order(), "a"),
        key_of(order(), "b"),
        key_of(order(on="v5e:2x2"), "a"),
        key_of(order(parameters={"batch": 9}), "a"),
        key_of(order(bundle=f"sha256:{'1' * 64}"), "a"),
        key_of(order(steps=15), "a"),
    }
    assert len(keys) == 6
    assert key_of(order(limit_s=5.0, plan="pln_01M850YG1BFS88XCEQ1GRE3HWR"), "a") == key_of(order(), "a")

    kept, made = KeptPlans(tmp_path / "plans"), plan_of(8, limit=8)
    assert kept.find("x") is None
    kept.keep("x", made)
    assert kept.find("x") == made
    (tmp_path / "plans" / "x.json").write_text("{")
    assert kept.find("x") is None
