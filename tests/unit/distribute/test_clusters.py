"""Clusters and what tells them: specs, resolvers, the gang that follows; what is refused, and how."""

import json
from typing import Any

import pytest

import drumline.distribute as dist
from drumline.distribute import cluster_resolver
from drumline.distribute.errors import (
    ClusterError,
    DuplicateTaskError,
    InvalidTypeError,
    InvalidValueError,
    UnsupportedError,
)
from support.cluster_environment import cluster_environment

TWO = {"worker": ["a:1", "b:1"]}


def simple(cluster: Any, task_type: str | None = None, task_id: int | None = None) -> Any:
    return cluster_resolver.SimpleClusterResolver(dist.ClusterSpec(cluster), task_type=task_type, task_id=task_id)


def test_a_cluster_is_read_from_lists_dicts_specs_and_definitions() -> None:
    spec = dist.ClusterSpec({"worker": ["a:1", "b:1"], "ps": {1: "p:1"}})

    assert spec.jobs == ["ps", "worker"]
    assert spec.as_dict() == {"ps": {1: "p:1"}, "worker": ["a:1", "b:1"]}
    assert spec.job_tasks("ps") == [None, "p:1"]
    assert dist.ClusterSpec(spec) == dist.ClusterSpec(spec.as_cluster_def()) == spec == spec.as_dict()
    assert spec != TWO
    assert repr(spec) == "ClusterSpec({'ps': {1: 'p:1'}, 'worker': ['a:1', 'b:1']})"
    assert not dist.ClusterSpec({})


@pytest.mark.parametrize(
    ("cluster", "error", "text"),
    [
        (["a:1"], InvalidTypeError, "cluster must be a dict from job names to addresses"),
        ({"worker": "a:1"}, InvalidTypeError, "the tasks of job 'worker' must be a list of addresses or a dict"),
        ({"worker": [b"a:1"]}, InvalidTypeError, "the address of task 0 of job 'worker' must be a string; got b'a:1'"),
        ({1: ["a:1"]}, InvalidTypeError, "a job's name must be a string; got 1"),
        ({"": ["a:1"]}, InvalidValueError, "a job's name must have 1 to 253 characters"),
        ({"worker": [""]}, InvalidValueError, "must have 1 to 1024 characters; got 0"),
        ({"worker": {"x": "a:1"}}, InvalidValueError, "job 'worker': a task's index must be a number; got 'x'"),
        ({"worker": {-1: "a:1"}}, InvalidValueError, "a task's index must be from 0 to 65535; got -1"),
        ({"worker": {65_536: "a:1"}}, InvalidValueError, "a task's index must be from 0 to 65535; got 65536"),
        ({"worker": {1: "a:1", "1": "b:1"}}, InvalidValueError, "job 'worker' has two addresses for task 1"),
        ({"worker": ["a:1"] * 65_537}, InvalidValueError, "a cluster of 65537 tasks is larger than 65536"),
    ],
)
def test_a_cluster_that_is_none_is_refused_by_name(cluster: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as refused:
        dist.ClusterSpec(cluster)
    assert text in str(refused.value)


@pytest.mark.parametrize("index", [float("inf"), float("nan"), 1.5])
def test_an_index_that_is_no_whole_number_is_refused(index: float) -> None:
    with pytest.raises(InvalidValueError, match="a task's index must be a number"):
        dist.ClusterSpec({"worker": {index: "a:1"}})


def test_unknown_jobs_and_tasks_are_named_with_those_that_are_there() -> None:
    spec = dist.ClusterSpec({"worker": [f"h{index}:1" for index in range(20)], "ps": []})
    for look_up in (spec.num_tasks, spec.task_indices, spec.job_tasks):
        with pytest.raises(ValueError, match="no job 'chief' in the cluster; it has ps, worker"):
            look_up("chief")
    with pytest.raises(ValueError, match=r"job 'worker' has no task 20; it has 0, 1, 2, 3, 4, 5, 6, 7, \.\.\."):
        spec.task_address("worker", 20)
    with pytest.raises(ValueError, match="job 'ps' has no tasks"):
        spec.job_tasks("ps")
    assert spec.as_dict()["ps"] == {}


@pytest.mark.parametrize(
    ("cluster", "task_type", "task_id", "gang"),
    [
        ({}, None, None, dist.Gang()),
        ({"worker": ["a:1"]}, "worker", 0, dist.Gang()),
        (TWO, "worker", 1, dist.Gang("a:1", 2, 1)),
        ({**TWO, "chief": ["c:1"]}, "worker", 1, dist.Gang("c:1", 3, 2)),
        ({**TWO, "chief": ["c:1"]}, "chief", 0, dist.Gang("c:1", 3, 0)),
        ({**TWO, "ps": ["p:1"], "evaluator": ["e:1"]}, "worker", 0, dist.Gang("a:1", 2, 0)),
        ({"worker": ["grpc://[::1]:7", "b:1"]}, "worker", 0, dist.Gang("[::1]:7", 2, 0)),
    ],
)
def test_chief_and_workers_are_the_gang_and_the_first_is_where_they_meet(
    cluster: Any, task_type: str | None, task_id: int | None, gang: dist.Gang
) -> None:
    resolver = simple(cluster, task_type, task_id)
    assert resolver.gang() == gang
    with cluster_environment(
        {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": task_type, "index": task_id}})}
    ):
        assert cluster_resolver.TFConfigClusterResolver().gang() == gang


@pytest.mark.parametrize(
    ("cluster", "task_type", "task_id", "error", "text"),
    [
        (TWO, None, None, InvalidValueError, "which of the cluster's 2 tasks this process is was not said"),
        (TWO, "worker", 2, InvalidValueError, "job 'worker' has no task 2; it has 0, 1"),
        (TWO, "chief", 0, InvalidValueError, "no job 'chief' in the cluster; it has worker"),
        ({**TWO, "ps": ["p:1"]}, "ps", 0, UnsupportedError, "task_type='ps' takes no part in a gang"),
        ({**TWO, "evaluator": ["e:1"]}, "evaluator", 0, UnsupportedError, "'evaluator' takes no part in a gang"),
        ({**TWO, "trainer": ["t:1"]}, "worker", 0, InvalidValueError, "job 'trainer' is unknown; a gang's jobs are"),
        ({**TWO, "chief": ["c:1", "d:1"]}, "worker", 0, InvalidValueError, "job 'chief' has 2 tasks; a cluster has at"),
        ({"worker": {1: "b:1", 2: "c:1"}}, "worker", 1, InvalidValueError, "job 'worker' has no task 0; a gang needs"),
        ({"worker": ["a:1", "a:1"]}, "worker", 0, InvalidValueError, "worker 0 and worker 1 have the same address a:1"),
        ({"worker": ["a", "b:1"]}, "worker", 0, InvalidValueError, "'a' is no address; write host:port"),
        ({"worker": ["a:0", "b:1"]}, "worker", 0, InvalidValueError, "0 is no port; use a number from 1 to 65535"),
        ({"worker": ["a:65536", "b:1"]}, "worker", 0, InvalidValueError, "65536 is no port"),
    ],
)
def test_a_cluster_that_forms_no_gang_is_refused_by_name(
    cluster: Any, task_type: str | None, task_id: int | None, error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as refused:
        simple(cluster, task_type, task_id).gang()
    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("a:1", 0, 0), "a gang has 1 to 65536 processes; got 0"),
        (("a:1", 65_537, 0), "a gang has 1 to 65536 processes; got 65537"),
        (("a:1", 2, 2), "process 2 is not in a gang of 2; ids go from 0 to 1"),
        (("a", 2, 0), "'a' is no address"),
    ],
)
def test_a_gang_that_is_none_is_refused(arguments: tuple[str, int, int], text: str) -> None:
    with pytest.raises(InvalidValueError, match=text):
        dist.Gang(*arguments)


def test_a_gang_has_the_arguments_that_jax_needs() -> None:
    assert dist.Gang("a:1", 2, 1, (0, 3)).arguments() == {
        "coordinator_address": "a:1", "num_processes": 2, "process_id": 1, "local_device_ids": [0, 3],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("nope", json.JSONDecodeError, "TF_CONFIG='nope' is no JSON: Expecting value; write, say,"),
        ("[]", InvalidValueError, "TF_CONFIG must be an object; got '[]'"),
        ("[" * 100_000, InvalidValueError, "TF_CONFIG"),
        ("x" * 140_000, InvalidValueError, "TF_CONFIG has 140000 characters, more than 131072"),
        ('{"cluster": ["a:1"]}', InvalidTypeError, "TF_CONFIG: cluster must be an object"),
        ('{"cluster": {"worker": [1]}}', InvalidTypeError, "TF_CONFIG: the address of task 0 of job 'worker' must be"),
        ('{"task": 5}', InvalidValueError, "TF_CONFIG: task must be an object; got 5"),
        ('{"task": {"type": 5}}', InvalidValueError, "TF_CONFIG: task.type must be a text; got 5"),
        ('{"task": {"type": "worker", "index": "x"}}', InvalidValueError, "task.index must be a whole number; got 'x'"),
        ('{"task": {"type": "worker", "index": 1.5}}', InvalidValueError, "task.index must be a whole number; got 1.5"),
        ('{"rpc_layer": 1}', InvalidValueError, "TF_CONFIG: rpc_layer must be a text; got 1"),
    ],
)
def test_a_tf_config_of_another_form_is_refused_by_name(text: str, error: type[Exception], message: str) -> None:
    with cluster_environment({"TF_CONFIG": text}), pytest.raises(error) as refused:
        ask_everything(cluster_resolver.TFConfigClusterResolver())
    assert isinstance(refused.value, (InvalidValueError, InvalidTypeError))
    assert message in str(refused.value)
    assert len(str(refused.value)) < 400


def ask_everything(resolver: cluster_resolver.ClusterResolver) -> tuple[Any, ...]:
    return resolver.gang(), resolver.task_type, resolver.task_id, resolver.rpc_layer, resolver.master()


def test_a_master_that_tf_config_says_is_taken_as_it_is() -> None:
    with cluster_environment({"TF_CONFIG": json.dumps({"cluster": TWO, "session_master": "grpc://m:1"})}):
        assert cluster_resolver.TFConfigClusterResolver().master() == "grpc://m:1"


def test_the_only_task_of_a_cluster_has_no_master_unless_others_are_left_out() -> None:
    with cluster_environment({"TF_CONFIG": '{"cluster": {"worker": ["a:1"]}}'}):
        assert cluster_resolver.TFConfigClusterResolver().master() == ""
    with cluster_environment({"TF_CONFIG": '{"cluster": {"worker": {"2": "a:1"}}}'}):
        assert cluster_resolver.TFConfigClusterResolver("worker", 2).master() == "a:1"


def test_a_union_puts_jobs_together_and_task_0_may_be_said() -> None:
    union = cluster_resolver.UnionResolver(simple(TWO, "worker", 1), simple({"ps": {1: "p:1"}, "worker": ["c:1"]}))

    assert union.cluster_spec() == {"worker": ["a:1", "b:1", "c:1"], "ps": {1: "p:1"}}
    assert (union.task_type, union.task_id, union.gang()) == ("worker", 1, dist.Gang("a:1", 3, 1))
    union.task_id = 0
    assert (union.task_id, union.gang().process_id) == (0, 0)
    assert union.master("ps", 1) == "p:1"


def test_a_union_refuses_two_addresses_for_a_task_and_what_is_no_resolver() -> None:
    union = cluster_resolver.UnionResolver(simple(TWO), simple({"worker": {1: "x:1"}}))
    with pytest.raises(DuplicateTaskError) as refused:
        union.cluster_spec()
    assert str(refused.value) == "two resolvers tell task 1 of job 'worker': b:1 and x:1"
    not_one: Any = TWO
    with pytest.raises(InvalidTypeError, match="is no ClusterResolver"):
        cluster_resolver.UnionResolver(not_one)
    with pytest.raises(InvalidTypeError, match="cluster_spec must be a ClusterSpec; got dict: wrap it in dist"):
        cluster_resolver.SimpleClusterResolver(not_one)


def test_a_union_of_one_forms_that_ones_gang_and_of_several_that_form_their_own_none() -> None:
    step = {
        "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_TASKS_PER_NODE": "1(x3)",
        "SLURM_STEP_NODELIST": "n[9-11]", "SLURM_JOB_ID": "1", "CUDA_VISIBLE_DEVICES": "",
    }  # fmt: skip
    union = cluster_resolver.UnionResolver
    with cluster_environment({**step, "TPU_WORKER_HOSTNAMES": "t0,t1", "TPU_WORKER_ID": "1"}):
        slurm, tpu = cluster_resolver.SlurmClusterResolver(), cluster_resolver.TPUClusterResolver()
        assert union(slurm).gang() == union(union(slurm)).gang() == dist.Gang("n9:61441", 3, 0)
        assert union(tpu).gang() == dist.Gang("t0:8482", 2, 1)
        for several in (union(slurm, tpu), union(simple({}), union(tpu)), union(slurm, task_id=2)):
            with pytest.raises(
                UnsupportedError, match="ClusterResolver can't be joined with another's or take another"
            ):
                several.gang()
    workers, chief = simple({"worker": ["a:1"]}, "worker", 0), simple({"chief": ["c:1"]})
    assert union(workers, union(chief)).gang() == dist.Gang("c:1", 2, 1)


SLURM = {
    "SLURM_JOB_ID": "7", "SLURM_NTASKS": "2", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "n1", "SLURM_STEP_TASKS_PER_NODE": "2",
}  # fmt: skip
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JAX_PROCESS_ID": "0"}
INDEXED = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "1"}
TPU = {"TPU_WORKER_HOSTNAMES": "t0,t1", "TPU_WORKER_ID": "0"}


@pytest.mark.parametrize(
    ("environment", "kind"),
    [
        ({"TF_CONFIG": "{}", **SLURM}, cluster_resolver.TFConfigClusterResolver),
        ({**SLURM, **POD, "CUDA_VISIBLE_DEVICES": ""}, cluster_resolver.SlurmClusterResolver),
        ({**POD, **TPU}, cluster_resolver.TPUClusterResolver),
        (POD, cluster_resolver.KubernetesClusterResolver),
        ({**INDEXED, **TPU}, cluster_resolver.TPUClusterResolver),
        (
            {**INDEXED, "NUM_PROCESSES": "2", "COORDINATOR_ADDRESS": "a", **TPU},
            cluster_resolver.KubernetesClusterResolver,
        ),
        ({**INDEXED, "NUM_PROCESSES": "2"}, cluster_resolver.KubernetesClusterResolver),
        (TPU, cluster_resolver.TPUClusterResolver),
        ({}, type(None)),
    ],
)
def test_the_environment_decides_what_tells_the_cluster(environment: dict[str, str], kind: type) -> None:
    from drumline.distribute.cluster.initialization import find_resolver

    with cluster_environment(environment):
        assert type(find_resolver()) is kind


def test_a_pod_of_an_indexed_job_that_is_not_told_how_many_there_are_runs_alone_and_warns() -> None:
    said = r"JOB_COMPLETION_INDEX .* runs alone: for one gang of all pods set NUM_PROCESSES \(the Job's completions"
    with cluster_environment(INDEXED), pytest.warns(dist.errors.DistributeWarning, match=said):
        assert dist.initialize() == dist.Gang()
    with cluster_environment(INDEXED):
        assert dist.initialize(simple({})) == dist.Gang()


def test_a_process_of_no_cluster_is_a_gang_of_one() -> None:
    with cluster_environment({}):
        assert dist.initialize() == dist.Gang()


def test_a_batch_script_of_several_tasks_is_told_to_use_srun() -> None:
    batch = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}
    with cluster_environment(batch), pytest.raises(ClusterError, match="4 tasks, and this process is none of them"):
        dist.initialize()
    with cluster_environment(batch):
        assert dist.initialize(simple({})) == dist.Gang()


def test_a_gang_is_not_formed_where_jax_has_started_or_the_arguments_are_none() -> None:
    import jax

    jax.devices()
    with pytest.raises(ClusterError, match=r"process 1 of 2 did not meet the others at a:1: .* must be called before"):
        dist.initialize(simple(TWO, "worker", 1))
    not_one: Any = TWO
    with pytest.raises(InvalidTypeError, match="resolver must be a ClusterResolver"):
        dist.initialize(not_one)
    for timeout_s in (0, 86_401, 1.5):
        with pytest.raises(InvalidValueError, match="timeout_s must be a whole number from 1 to 86400"):
            dist.initialize(simple({}), timeout_s=timeout_s)  # type: ignore[arg-type] # one is no int


def test_the_contrib_strategy_takes_a_cluster_of_one_task_however_it_is_said() -> None:
    strategy = dist.contrib.MirroredStrategy(["CPU:0", "CPU:1"])
    one: Any
    for one in (None, {}, {"worker": ["a:1"]}, dist.ClusterSpec({"worker": ["a:1"]})):
        strategy.configure(cluster_spec=one)
    for two in (TWO, dist.ClusterSpec(TWO)):
        with pytest.raises(ClusterError, match="a cluster of 2 tasks has a process for each, and this one has not met"):
            strategy.configure(cluster_spec=two)
    with pytest.raises(InvalidTypeError, match="the tasks of job 'worker' must be a list"):
        strategy.configure(cluster_spec={"worker": "a:1"})


@pytest.mark.parametrize(("size", "process"), [("2", 0), (2, "0"), (2.0, 0), (True, 0), (None, 0)])
def test_a_gang_of_numbers_that_are_none_is_a_typed_error(size: Any, process: Any) -> None:
    with pytest.raises(InvalidTypeError, match="must be a whole number"):
        dist.Gang("a:1", size, process)


@pytest.mark.parametrize(
    ("task_type", "task_id", "error"),
    [
        ("ps", 0, InvalidValueError),
        ("worker", 3, InvalidValueError),
        (7, 0, InvalidTypeError),
        ("worker", "0", InvalidTypeError),
    ],
)
def test_configure_names_a_task_that_the_cluster_has_not(task_type: Any, task_id: Any, error: type[Exception]) -> None:
    strategy = dist.contrib.MirroredStrategy()
    with pytest.raises(error):
        strategy.configure(None, {"worker": ["a:1"]}, task_type, task_id)
