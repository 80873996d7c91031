"""Which runs may be split over hosts is known at submit; what may not is refused with the reason."""

from typing import Any

import pytest

from drumline_server.base.errors import DrumlineError
from support.core import Core


def refusal(core: Core, **changes: Any) -> DrumlineError:  # Any: fields of RunSubmit
    """What the server says to such a submission."""
    with pytest.raises(DrumlineError) as caught:
        core.submit(**changes)
    return caught.value


@pytest.mark.parametrize("spread", ["pack", "balance"])
@pytest.mark.parametrize(
    ("strategy", "tie", "way"),
    [
        (
            {"kind": "mirrored", "executor": "pmap"},
            "executor pmap",
            "Without executor=pmap it may be split over hosts",
        ),
        (
            {"kind": "mirrored", "executor": "mpmd"},
            "executor mpmd",
            "Without executor=mpmd it may be split over hosts",
        ),
        ({"kind": "central_storage"}, "strategy central_storage", "The strategy mirrored may be split over hosts"),
    ],
)
def test_what_computes_in_one_process_is_not_split_over_hosts_and_the_refusal_says_so(
    core: Core, spread: str, strategy: dict[str, str], tie: str, way: str
) -> None:
    core.add_worker(devices=4)
    core.add_worker("beta", devices=6)
    job = {"strategy": strategy}

    error = refusal(core, job=job, resources={"replicas": 8, "spread": spread})

    assert error.detail == (
        "The run needs 8 replicas on one host, but the largest host has 6 devices (10 devices on 2 hosts): the "
        f"{tie}, stays on one host."
    )
    assert error.hint.startswith("Ask for at most 6 replicas, or set wait_for_devices")
    assert error.hint.endswith(f"{way}.")
    assert core.submit(job=job, resources={"replicas": 6, "spread": spread}).state == "QUEUED"


@pytest.mark.parametrize(
    "options", [{}, {"batch": "per_replica"}, {"executor": "spmd"}, {"collectives": "jax"}], ids=str
)
def test_one_mirrored_strategy_may_be_split_over_hosts(core: Core, options: dict[str, str]) -> None:
    core.add_worker(devices=4)
    core.add_worker("beta", devices=6)
    job = {"strategy": {"kind": "mirrored", **options}}

    assert core.submit(job=job, resources={"replicas": 10}).state == "QUEUED"
    refusal(core, job=job, resources={"replicas": 8, "spread": "one_host"})


@pytest.mark.parametrize("strategy", [{"kind": "mirrored", "executor": "pmap"}, {"kind": "central_storage"}])
def test_a_run_that_no_number_of_hosts_has_room_for_is_not_sent_over_hosts(
    core: Core, strategy: dict[str, str]
) -> None:
    core.add_worker(devices=4)
    core.add_worker("beta", devices=6)

    assert "over hosts" not in refusal(core, job={"strategy": strategy}, resources={"replicas": 11}).hint
