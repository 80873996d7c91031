"""Submitting: everything is checked first, stored in one transaction, and said once."""

import hashlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from drumline.contracts.problems import ProblemCode
from drumline.contracts.states import RunState
from drumline_server.base.errors import DrumlineError, NotFoundError
from drumline_server.services import submit
from drumline_server.services.jobs import content_hash
from drumline_server.storage.database import Database
from drumline_server.storage.models import Base, Job, Run
from drumline_server.storage.requests import KEPT_US
from support.core import BUNDLE, GANG, TESTER, Core, submission_body
from support.submissions import submit_one

pytestmark = pytest.mark.both_databases


def count(core: Core, table: type[Base]) -> int:
    return core.read(lambda session: session.scalar(select(func.count()).select_from(table)) or 0)


def refusal(core: Core, **changes: Any) -> DrumlineError:
    with pytest.raises(DrumlineError) as caught:
        core.submit(**changes)
    return caught.value


def test_submitted_run_is_queued_with_its_first_event(core: Core) -> None:
    core.add_worker()

    run = core.submit(resources={"replicas": 8}, parameters={"epochs": 3}, labels={"team": "vision"}, priority=5)

    assert run.state is RunState.QUEUED
    assert (run.replicas, run.parameters, run.labels, run.priority) == (8, {"epochs": 3}, {"team": "vision"}, 5)
    assert (run.job, run.version, run.last_event) == ("digits", 1, 1)
    assert core.states(run.id) == ["QUEUED"]
    assert core.run(run.id).model_copy(update={"why": run.why, "wait": run.wait}) == run


def test_same_content_is_the_same_version_and_other_content_the_next(core: Core) -> None:
    core.add_worker()

    first = core.submit_answer(parameters={"epochs": 1})
    same = core.submit_answer(parameters={"epochs": 2})
    other = core.submit_answer(job={"record": {"reductions_every": 5}})

    assert [answer.submitted.created_version for answer in (first, same, other)] == [True, False, True]
    assert [answer.submitted.run.version for answer in (first, same, other)] == [1, 1, 2]
    assert first.submitted.run.spec.id == same.submitted.run.spec.id
    assert count(core, Job) == 1


def test_same_key_and_body_give_the_same_run(core: Core) -> None:
    core.add_worker()

    first = core.submit_answer(key="k")
    again = core.submit_answer(key="k")

    assert again.replayed
    assert again.submitted == first.submitted
    assert count(core, Run) == 1


def test_same_key_with_another_body_is_refused(core: Core) -> None:
    core.add_worker()
    core.submit(key="k", priority=1)

    assert refusal(core, key="k", priority=2).code is ProblemCode.IDEMPOTENCY_MISMATCH


def test_same_key_in_another_project_is_another_run(core: Core) -> None:
    core.add_worker()
    other = core.add_project("other")

    core.submit(key="k")
    core.submit(key="k", project_id=other, wait_for_devices=True)

    assert count(core, Run) == 2


def test_same_key_of_another_credential_is_another_run(core: Core) -> None:
    core.add_worker()
    first = core.submit_answer(key="k", credential="tok_1").submitted.run
    other = core.submit_answer(key="k", credential="ses_2", parameters={"epochs": 3}).submitted.run

    assert other.id != first.id


def test_key_is_free_again_after_seven_days(core: Core) -> None:
    core.add_worker()
    first = core.submit(key="k")
    core.clock.micros += KEPT_US + 1

    assert core.submit(key="k").id != first.id


def test_twin_in_flight_is_told_to_come_back(postgres_url: str) -> None:
    """SQLite has one writer, so a twin can only meet a finished answer there."""
    database = Database(postgres_url)
    core = Core(database)
    core.add_worker()
    request = submit.Submission(core.project_id, TESTER, "k", submission_body(), "tok_1")
    begun, finish = threading.Event(), threading.Event()

    def slowly(session: Session) -> str:
        answer = submit_one(session, request, now=core.clock.now())
        begun.set()
        assert finish.wait(10)
        return answer.submitted.run.id

    with ThreadPoolExecutor(1) as executor:
        first = executor.submit(database.write_now, slowly)
        assert begun.wait(10)
        error = refusal(core, key="k")
        finish.set()
        run_id = first.result(10)
    again = core.submit(key="k")
    database.close()

    assert error.code is ProblemCode.IDEMPOTENCY_IN_FLIGHT
    assert again.id == run_id


def test_refused_submission_stores_nothing_and_leaves_its_key_free(core: Core) -> None:
    core.add_worker(devices=2)

    refusal(core, key="k", resources={"replicas": 3})

    assert (count(core, Run), count(core, Job)) == (0, 0)
    assert core.submit(key="k", resources={"replicas": 2}).state is RunState.QUEUED


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        (
            {"resources": {"replicas": 9}},
            ProblemCode.TOO_MANY_REPLICAS,
            "9 replicas, but the largest host has 8 devices",
        ),
        (
            {"resources": {"replicas": 1, "platform": "tpu"}},
            ProblemCode.TOO_MANY_REPLICAS,
            "no host with tpu devices is registered",
        ),
        (
            {"job": {"strategy": {"kind": "tpu", "computation_shape": [1, 2]}}, "wait_for_devices": True},
            ProblemCode.INVALID_REQUEST,
            r"job.strategy.computation_shape: .* must be 4 positive numbers \(x, y, z, core\); got \[1, 2\]",
        ),
        (
            {"job": {"strategy": {"kind": "tpu", "topology": "v9:2x2"}}, "wait_for_devices": True},
            ProblemCode.INVALID_REQUEST,
            "job.strategy.topology: .*there is no TPU 'v9'",
        ),
        (
            {"job": {"strategy": {"kind": "tpu", "executor": "mpmd"}}, "wait_for_devices": True},
            ProblemCode.INVALID_REQUEST,
            "job.strategy.executor: .*leave out executor=mpmd",
        ),
        (
            {
                "job": {"strategy": {"kind": "tpu", "topology": "v4:2x2x1"}},
                "resources": {"replicas": 2, "platform": "cpu"},
            },
            ProblemCode.INVALID_REQUEST,
            "ask for 4 replicas, or for another topology",
        ),
        (
            {"job": {"strategy": {"kind": "mirrored", "batch": "per_replica", "executor": "pmap"}}},
            ProblemCode.INVALID_REQUEST,
            "job.strategy.executor: .*leave out executor=pmap",
        ),
        (
            {"job": {"strategy": {"kind": "central_storage"}}, "resources": {"replicas": 9}},
            ProblemCode.TOO_MANY_REPLICAS,
            "9 replicas on one host, but the largest host has 8 devices",
        ),
        (
            {"resources": {"replicas": 1, "platform": "gpu"}},
            ProblemCode.TOO_MANY_REPLICAS,
            "needs 1 replica, but no host with gpu devices is registered: the hosts have 8 cpu devices",
        ),
        (
            {"job": {"strategy": {"kind": "one_device"}}, "resources": {"replicas": 2}},
            ProblemCode.INVALID_REQUEST,
            "one_device has 1 replica; got 2",
        ),
        (
            {"job": {"program": {"bundle": "sha256:" + "0" * 64, "entrypoint": "digits:main"}}},
            ProblemCode.BUNDLE_NOT_FOUND,
            "no bundle sha256:000",
        ),
        (
            {"job": {"program": {"bundle": BUNDLE, "entrypoint": "digits:train"}}},
            ProblemCode.ENTRYPOINT_NOT_FOUND,
            "digits:train.*digits:main",
        ),
        ({"parameters": {"epoch": 1}}, ProblemCode.UNKNOWN_PARAMETER, "epoch.*did you mean 'epochs'"),
        ({"parameters": {"epochs": "many"}}, ProblemCode.BAD_PARAMETER, "epochs.*whole number"),
        ({"parameters": {"epochs": float("nan")}}, ProblemCode.INVALID_REQUEST, "parameters"),
        ({"parameters": {"epochs": "\x00"}}, ProblemCode.INVALID_REQUEST, "NUL"),
    ],
)
def test_bad_submission_is_refused_with_its_reason(
    core: Core, changes: dict[str, object], code: ProblemCode, words: str
) -> None:
    core.add_worker()

    error = refusal(core, **changes)

    assert error.code is code
    with pytest.raises(DrumlineError, match=words):
        raise error


def test_too_many_replicas_names_both_numbers(core: Core) -> None:
    core.add_worker(devices=4)
    core.add_worker("beta", devices=6)

    error = refusal(core, job=GANG, resources={"replicas": 11})

    assert error.context == {
        "replicas": 11,
        "possible": 10,
        "devices": 10,
        "platform": "any",
        "platforms": {"cpu": 10},
        "nearest": {"replicas": 10, "devices_per_replica": 1, "platform": "any"},
    }
    assert "the 2 hosts together have 10 devices" in error.detail


def test_versions_without_a_newer_option_keep_their_identity(core: Core) -> None:
    """Options that came later than they did."""
    with_option = submission_body().job
    content = with_option.model_dump(mode="json", exclude={"name"})
    del content["strategy"]["collectives"]
    del content["record"]["on_divergence"]
    del content["record"]["large_reductions_every"]
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))

    assert content_hash(with_option) == f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"
    on_jax = {"strategy": {"kind": "mirrored", "collectives": "jax"}}
    assert content_hash(submission_body(job=on_jax).job) != content_hash(with_option)


@pytest.mark.parametrize(
    ("strategy", "resources", "possible"),
    [
        ({"kind": "mirrored"}, {}, 10),
        ({"kind": "mirrored", "executor": "pmap"}, {}, 6),
        ({"kind": "mirrored"}, {"spread": "one_host"}, 6),
        ({"kind": "central_storage"}, {}, 6),
        ({"kind": "mirrored"}, {"platform": "gpu"}, 3),
    ],
)
def test_nearest_possible_count_is_named_and_accepted(
    core: Core, strategy: dict[str, object], resources: dict[str, object], possible: int
) -> None:
    core.add_worker(devices=4)
    core.add_worker("beta", devices=6)
    core.add_worker("gamma", devices=3, platform="gpu")

    error = refusal(core, resources={"replicas": 100, **resources}, job={"strategy": strategy})

    assert error.context["possible"] == possible
    assert f"at most {possible} replica" in error.hint
    assert core.submit(resources={"replicas": possible, **resources}, job={"strategy": strategy}).state == "QUEUED"
    refusal(core, resources={"replicas": possible + 1, **resources}, job={"strategy": strategy})


@pytest.mark.parametrize(
    ("platform", "asked", "nearest", "ask", "wrong"),
    [
        (
            "cpu",
            (1, 7),
            ("cpu", 1, 6),
            "at most 6 devices per replica",
            ("job.strategy.computation_shape", "7 devices per replica; 1 replica of 6 devices can ever start"),
        ),
        (
            "cpu",
            (2, 7),
            ("cpu", 2, 3),
            "at most 3 devices per replica",
            (
                "job.strategy.computation_shape",
                "7 devices per replica; 2 replicas of 3 devices on one slice can ever start",
            ),
        ),
        (
            "gpu",
            (100, 7),
            ("gpu", 1, 3),
            "at most 1 replica and at most 3 devices per replica",
            ("job.strategy.computation_shape", "7 devices per replica; 1 replica of 3 devices can ever start"),
        ),
        (
            "tpu",
            (1, 1),
            ("cpu", 1, 1),
            "platform cpu",
            ("resources.platform", "tpu; the hosts have 10 cpu devices and 3 gpu devices"),
        ),
        (
            "tpu",
            (4, 3),
            ("cpu", 2, 3),
            "platform cpu and at most 2 replicas",
            ("resources.platform", "tpu; the hosts have 10 cpu devices and 3 gpu devices"),
        ),
    ],
)
def test_nearest_possible_size_and_platform_are_named_and_accepted(
    *,
    core: Core,
    platform: str,
    asked: tuple[int, int],
    nearest: tuple[str, int, int],
    ask: str,
    wrong: tuple[str, str],
) -> None:
    core.add_worker(devices=4)
    core.add_worker("beta", devices=6)
    core.add_worker("gamma", devices=3, platform="gpu")

    def changes(platform: str, replicas: int, size: int) -> dict[str, Any]:
        strategy = {"kind": "tpu", "computation_shape": [size, 1, 1, 1]}
        return {"resources": {"platform": platform, "replicas": replicas}, "job": {"strategy": strategy}}

    with pytest.raises(DrumlineError) as caught:
        core.judge(**changes(platform, *asked))
    error = caught.value

    assert error.hint.startswith(f"Ask for {ask}, or set wait_for_devices")
    assert [(one.field, one.message) for one in error.errors] == [wrong]
    assert error.context["platforms"] == {"cpu": 10, "gpu": 3}
    assert tuple(error.context["nearest"][name] for name in ("platform", "replicas", "devices_per_replica")) == nearest
    core.judge(**changes(*nearest))


def test_nothing_is_near_where_no_worker_has_registered(core: Core) -> None:
    error = refusal(core, resources={"replicas": 1, "platform": "gpu"})

    assert (error.context["platforms"], error.context["nearest"]) == ({}, None)
    assert error.hint.startswith("Set wait_for_devices")


def test_run_that_waits_for_devices_is_queued_and_says_why(core: Core) -> None:
    core.add_worker(devices=4)

    run = core.run(core.submit(resources={"replicas": 9}, wait_for_devices=True).id)

    assert run.why is not None
    assert run.why.rule == "too_few_devices"
    assert run.why.evidence == {"wanted": 9, "largest": 4, "host": "alpha"}


def test_bundle_of_another_project_does_not_exist(core: Core) -> None:
    core.add_worker()
    stranger = core.add_project("stranger")
    run = core.submit()

    with pytest.raises(NotFoundError):
        core.run(run.id, project_id=stranger)
