"""What a step takes, in lines for a terminal."""

from drumline.contracts import api
from drumline.contracts.throughput import SampledTimes, Throughput
from drumline.resources.step_text import step_text


def test_a_step_is_told_with_its_rates_its_parts_and_its_shares() -> None:
    throughput = Throughput(
        step_ms=12.34,
        input_wait_ms=1.1,
        dispatch_ms=0.5,
        tokens_per_s=1_600_000,
        hfu_percent=41.23,
        sampled=SampledTimes(step=9, span_ms=10, computing_ms=7, collective_ms=2.5, both_ms=1, idle_ms=1.5),
        mfu_unknown="examples",
    )
    progress = api.Progress(step=3, steps_per_s=81.0, examples_per_s=2592.0, throughput=throughput)
    assert step_text(progress).splitlines() == [
        "81 steps/s, 2,592 examples/s, 1,600,000 tokens/s",
        "a step takes 12.3 ms: input wait 1.1 ms, dispatch 0.5 ms",
        "in collectives 2.5 ms, computing 7 ms (1 ms of both at once), idle 1.5 ms of 10 ms (sampled at step 9)",
        "MFU not known: the steps take no batch of a dataset",
        "HFU 41.2 %",
    ]


def test_where_no_step_was_traced_no_time_in_collectives_is_invented() -> None:
    for unknown, said in ((None, "no step is traced; submit with record.profile_every"), ("platform", "the platform")):
        throughput = Throughput.model_validate({"sampled_unknown": unknown})
        assert f"in collectives: not measured: {said}" in step_text(api.Progress(throughput=throughput))


def test_of_a_run_of_an_older_worker_nothing_is_told() -> None:
    assert step_text(api.Progress(step=3, steps_per_s=81.0)) == ""
