"""When members of a gang come to their collectives, in lines for a terminal."""

from drumline.contracts import api
from drumline.contracts.base import new_id
from drumline.contracts.throughput import Throughput
from drumline.resources.arrival_text import arrivals_text
from drumline.resources.step_text import step_text

LATE = api.Straggler(
    rank=1, host_name="beta", gain_percent=48.0, gain_ms=60.0, step_ms=125.0, error_ms=2.0, arrived_last=30, compared=32
)


def _found(**changes: object) -> api.Arrivals:
    fields = {"run": new_id("run"), "attempt": None, "executor": "spmd", "unmeasured": None, "compared": 0}
    return api.Arrivals.model_validate({**fields, "members": (), **changes})


def test_each_member_has_a_row_and_the_straggler_a_sentence() -> None:
    times = api.ArrivalTimes(arrival_ms=61, input_ms=1, own_code_ms=60, dispatch_ms=0.25, wait_ms=0, devices_ms=64)
    member = {"rank": 1, "host": new_id("hst"), "host_name": "beta", "arrived_last": 30, "latest": times}
    told = _found(compared=32, step_ms=125.0, error_ms=2.0, straggler=LATE, members=({**member, "median": times},))
    lines = arrivals_text(told).splitlines()

    assert " ".join(lines[0].split()) == "RANK HOST CAME LAST ARRIVAL INPUT OWN CODE DISPATCH WAIT DEVICES"
    assert lines[1].split() == ["1", "beta", "30", "of", "32", "61", "1", "60", "0.25", "0", "64"]
    sentence = (
        "rank 1 on beta came last in 30 of 32 sampled steps: the others wait up to 48 % of a step for it (60 of 125 ms)"
    )
    assert lines[-1] == sentence
    assert step_text(api.Progress(throughput=Throughput(step_ms=125.0), straggler=LATE)).endswith(sentence)


def test_what_is_not_measured_says_so_with_the_executor() -> None:
    told = arrivals_text(_found(unmeasured="executor", executor="pmap"))
    assert told == "not measured for this executor: one process starts all replicas together (pmap)"
