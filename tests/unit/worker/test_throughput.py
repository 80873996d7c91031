"""What the steps behind a rate are made of, and what share of the chips' peak that is."""

import pytest

from drumline.distribute.observe import StepCost, StepRecord
from drumline.slices import GPUS, peak_flops
from drumline_worker.runner.throughput import Meter, StepRate, Window

MS = 1_000_000
H100 = GPUS["h100"].kind
COUNTED = StepCost(1e12)


class Clock:
    """For how long the program has waited for input."""

    input_s = 0.0


def _run(meter: Meter, clock: Clock, costs: list[StepCost | None], *, examples: int | None = 32) -> Window:
    """A call begins each 250 ms: 100 ms of input before it, 50 ms within it, of which 30 ms wait for devices."""
    rate, windows = StepRate(meter.work), list[Window]()
    for call, cost in enumerate(costs):
        clock.input_s += 0.1
        began = 250 * MS * call
        record = StepRecord(call, "spmd", began, began + 50 * MS, None, examples, 30 * MS, cost)
        meter.call(record)
        windows += [window] if (window := rate.call(record)) is not None else []
    assert len(windows) == len(costs) - 1
    mean = rate.mean()
    assert mean is not None
    return mean


def test_a_step_is_input_dispatch_and_the_rest() -> None:
    clock = Clock()
    meter = Meter(lambda: clock.input_s)
    figures = meter.figures(_run(meter, clock, [None] * 5))
    assert figures["step_ms"] == pytest.approx(250)
    assert figures["input_wait_ms"] == pytest.approx(100)
    assert figures["dispatch_ms"] == pytest.approx(20)


def test_what_an_example_holds_and_takes_gives_tokens_and_mfu_and_the_program_gives_hfu() -> None:
    clock = Clock()
    meter = Meter(lambda: clock.input_s)
    meter.place([H100] * 8)
    meter.describe(512, None)
    meter.describe(None, 2e11)
    window = _run(meter, clock, [COUNTED] * 5)
    peak = peak_flops(H100)
    assert peak is not None
    assert meter.figures(window) == pytest.approx(
        {
            **window.figures,
            "input_wait_ms": 100,
            "dispatch_ms": 20,
            "tokens_per_s": 4 * 32 * 512,
            "hfu_percent": 100 * 4 * 1e12 / peak,
            "mfu_percent": 100 * 4 * 32 * 2e11 / (8 * peak),
        }
    )
    told = meter.fields(window, is_still=False)["throughput"]
    assert (told["hfu_unknown"], told["mfu_unknown"], told["flops_per_s"]) == (None, None, pytest.approx(4e12))


@pytest.mark.parametrize(
    ("kinds", "costs", "unknown"),
    [
        (["cpu"] * 2, [COUNTED] * 3, "chip"),
        ([H100, "NVIDIA H200"], [COUNTED] * 3, "chip"),
        ([H100] * 2, [COUNTED, COUNTED, StepCost(None, "loops")], "loops"),
        ([H100] * 2, [None] * 3, "executor"),
    ],
)
def test_where_a_share_is_not_known_no_number_is_invented(
    kinds: list[str], costs: list[StepCost | None], unknown: str
) -> None:
    clock = Clock()
    meter = Meter(lambda: clock.input_s)
    meter.place(kinds)
    window = _run(meter, clock, costs)
    assert "hfu_percent" not in meter.figures(window)
    told = meter.fields(window, is_still=False)["throughput"]
    assert (told["hfu_percent"], told["hfu_unknown"]) == (None, unknown)


def test_without_known_examples_there_are_neither_tokens_nor_mfu() -> None:
    clock = Clock()
    meter = Meter(lambda: clock.input_s)
    meter.place([H100])
    meter.describe(512, 2e11)
    told = meter.fields(_run(meter, clock, [COUNTED] * 3, examples=None), is_still=False)["throughput"]
    assert (told["tokens_per_s"], told["mfu_percent"], told["mfu_unknown"]) == (None, None, "examples")


def test_who_stands_still_has_rates_of_zero_and_no_time_of_a_step() -> None:
    clock = Clock()
    meter = Meter(lambda: clock.input_s)
    meter.place([H100])
    told = meter.fields(_run(meter, clock, [COUNTED] * 3), is_still=True)["throughput"]
    assert (told["hfu_percent"], told["flops_per_s"], told["tokens_per_s"]) == (0, 0, None)
    assert (told["step_ms"], told["input_wait_ms"]) == (None, None)


def test_a_server_that_does_not_take_it_is_not_told() -> None:
    clock = Clock()
    meter = Meter(lambda: clock.input_s, is_told=False)
    assert meter.fields(_run(meter, clock, [None] * 3), is_still=False) == {}
