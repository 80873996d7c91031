"""Where a reduction was NaN or infinite first: of the run, of each name, and of all members together."""

from drumline.contracts import api
from drumline_server.telemetry.ingest import list_non_finite
from support.attempts import again
from support.core import Core, Member


def test_a_run_and_its_row_have_the_first_of_all_with_the_replicas_of_every_member(core: Core) -> None:
    run, (first, second) = _gang(core)
    tell(first, "loss", 9, (0, 1, 0))
    tell(first, "weights", 7)  # the part of a replica that the other member has
    tell(second, "weights", 7, (5, 3, 1))

    found = core.run(run).first_non_finite
    assert found is not None
    assert (found.name, found.step, found.replicas_in_all) == ("weights", 7, 1)
    assert [(one.replica, one.nan_count, one.inf_count) for one in found.replicas] == [(5, 3, 1)]
    assert core.runs().items[0].first_non_finite == found
    assert [(one.name, one.step) for one in listed(core, run)] == [("weights", 7), ("loss", 9)]
    assert [event.body["names"] for event in core.events(run) if event.kind == "non_finite"] == [1, 2, 2]


def test_a_run_that_is_tried_again_has_the_first_of_the_newest_attempt_that_had_one(core: Core) -> None:
    worker = core.add_worker()
    run = core.submit(resources={"replicas": 8}, retries={"infrastructure": 9}).id
    core.schedule()
    member = worker.take().start()
    tell(member, "loss", 3, (1, 1, 0))
    (before,) = core.attempts(run)
    member = again(core, worker, run, member)
    kept = core.run(run).first_non_finite
    assert kept is not None
    assert kept.attempt == before.id
    tell(member, "loss", 5, (1, 1, 0))
    assert [one.step for one in listed(core, run)] == [5]
    assert [one.step for one in listed(core, run, before.id)] == [3]


def _gang(core: Core) -> tuple[str, list[Member]]:
    workers = [core.add_worker(name, devices=4) for name in ("alpha", "beta")]
    run = core.submit(resources={"replicas": 8}).id
    core.schedule()
    return run, [worker.take().start() for worker in workers]


def tell(member: Member, name: str, step: int, *replicas: tuple[int, int, int]) -> None:
    """Of each replica its number, its NaNs and its infinities."""
    told = [{"replica": replica, "nan_count": nan, "inf_count": inf} for replica, nan, inf in replicas]
    fields = {"op": "mean", "shape": (4,), "replicas": told, "result_count": 1}
    member.send(member.event("non_finite", name=name, step=step, call=step, **fields))


def listed(core: Core, run: str, attempt: str | None = None) -> tuple[api.NonFinite, ...]:
    """The first of each name."""
    return core.read(lambda session: list_non_finite(session, core.project_id, run, attempt)).items
