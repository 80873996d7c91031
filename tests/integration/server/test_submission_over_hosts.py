"""Which runs may be split over hosts is known at submit; what may not is refused with the reason."""

from typing import Any

import pytest

from drumline.contracts import api
from drumline.contracts.plans import PlanRequest
from drumline_server.base.errors import DrumlineError
from drumline_server.services import plans
from drumline_server.services.submit import Submission
from support.core import GANG, TERMS, TESTER, Core, submission_body


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


SAVING = {"strategy": {"kind": "mirrored"}, "checkpoint": {"every_steps": 10}}


def workers(core: Core, *stores: str) -> None:
    """Hosts of 2 devices each, with their checkpoint stores; one without a name has its own."""
    for number, store in enumerate(stores):
        core.add_worker(f"host{number}", devices=2).register(checkpoint_store=store)


def test_a_submission_that_must_be_split_over_hosts_without_one_store_is_warned(core: Core) -> None:
    workers(core, "", "vol_x")

    run = core.submit(job=GANG, resources={"replicas": 4})

    (warning,) = run.warnings
    assert (run.state, warning.code) == ("QUEUED", "no_shared_store")
    assert warning.message == (
        "No host alone has room for 4 replicas, and those that have it together share no checkpoint store: "
        "run.checkpoint fails there. Start their workers with --checkpoint-dir on one volume, or ask for at most 2 "
        "replicas."
    )
    assert core.run(run.id).warnings == run.warnings


def test_a_run_that_was_split_over_hosts_without_one_store_says_so_while_it_lives(core: Core) -> None:
    workers(core, "", "")
    run = core.submit(job=GANG, resources={"replicas": 4})
    assert core.schedule() == [run.id]

    (warning,) = core.run(run.id).warnings

    assert warning.message.startswith("Its hosts host0 and host1 share no checkpoint store: run.checkpoint fails")
    core.cancel(run.id, grace_s=0)
    core.clock.advance(61)
    core.reap()
    assert (core.run(run.id).state, core.run(run.id).warnings) == ("CANCELLED", ())


@pytest.mark.parametrize(
    ("stores", "job", "resources"),
    [
        (["vol_x", "vol_x"], GANG, {"replicas": 4}),
        (["vol_x", "", "vol_x"], SAVING, {"replicas": 4}),
        (["", ""], GANG, {"replicas": 2}),
        (["", ""], SAVING, {"replicas": 2}),
    ],
    ids=["one store", "one store of two", "one host", "one host that saves"],
)
def test_a_run_that_can_save_where_it_goes_is_not_warned(
    core: Core, stores: list[str], job: dict[str, Any], resources: dict[str, Any]
) -> None:
    workers(core, *stores)
    run = core.submit(job=job, resources=resources)

    assert run.warnings == core.run(run.id).warnings == ()
    assert core.schedule() == [run.id]
    assert core.run(run.id).warnings == ()
    hosts = core.run(run.id).hosts
    assert len(hosts) == 1 or {stores[int(name[-1])] for name in hosts} == {"vol_x"}


def test_a_run_that_asks_for_checkpoints_is_refused_where_hosts_of_one_store_never_have_room(core: Core) -> None:
    workers(core, "vol_x", "vol_y")

    error = refusal(core, job=SAVING, resources={"replicas": 4})

    assert error.detail == (
        "The run needs 4 replicas on hosts that share a checkpoint store, but no hosts of one store have room for more "
        "than 2 replicas."
    )
    assert error.hint == (
        "Ask for at most 2 replicas, or set wait_for_devices (--wait-for-devices) to queue it until there are enough. "
        "Or start the workers with --checkpoint-dir on one volume, or leave checkpoint.every_steps out."
    )
    assert refusal(core, job=SAVING, resources={"replicas": 5}).hint.endswith("until there are enough.")


def test_a_run_that_asks_for_checkpoints_waits_for_hosts_that_share_a_store(core: Core) -> None:
    workers(core, "vol_x", "vol_y")
    run = core.submit(job=SAVING, resources={"replicas": 4}, wait_for_devices=True)

    assert core.schedule() == []
    why = core.run(run.id).why
    assert why is not None
    assert (why.rule, why.sentence) == (
        "too_few_devices",
        "Needs 4 replicas on hosts that share a checkpoint store, but no hosts of one store have room for more than 2 "
        "replicas.",
    )

    core.add_worker("large", devices=2).register(checkpoint_store="vol_y")
    busy = core.submit(resources={"replicas": 1}, priority=9)
    assert core.schedule() in ([busy.id], [busy.id, run.id])


def planned(core: Core, key: str) -> api.Plan:
    body = PlanRequest.model_validate({"run": submission_body(job=GANG, resources={"replicas": 4})})
    order = plans.PlanSubmission(Submission(core.project_id, TESTER, key, body.run, "tok_1"), body, TERMS)
    draft = core.read(lambda session: plans.draft_plan(session, order, now=core.clock.now()))
    return core.write(lambda session: plans.keep_plan(session, order, draft, now=core.clock.now()))


def test_a_plan_warns_of_hosts_that_share_no_checkpoint_store(core: Core) -> None:
    workers(core, "", "vol_x")
    (warning,) = planned(core, "apart").warnings
    assert warning.code == "no_shared_store"
    assert "run.checkpoint fails there" in warning.message

    core.add_worker("gamma", 2).register(checkpoint_store="vol_x")
    plan = planned(core, "shared")
    assert (plan.warnings, {device.host_name for device in plan.devices}) == ((), {"host1", "gamma"})
