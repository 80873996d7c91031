"""Slurm's steps of several shapes, from environments that were recorded of real ones and of TensorFlow's tests."""

import os
from dataclasses import dataclass, field
from typing import Any

import pytest

import drumline.distribute as dist
from drumline.distribute.cluster_resolver import SlurmClusterResolver, expand_hostlist, expand_tasks_per_node
from drumline.distribute.errors import ClusterError, InvalidValueError, UnsupportedError
from support.cluster_environment import cluster_environment


@dataclass(frozen=True)
class Step:
    """What ``srun`` told a task, and what follows from it. ``arguments``: of the resolver."""

    environment: dict[str, str]
    gang: dist.Gang
    cluster: dict[str, list[str]]
    gpus_visible: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict)


STEPS = {
    "one task on one node with a GPU, in a shell": Step(
        {
            "SLURM_CPUS_ON_NODE": "8", "SLURM_GPUS_ON_NODE": "1", "SLURM_JOB_ID": "1731344", "SLURM_JOB_GPUS": "1",
            "SLURM_JOB_NODELIST": "GPU71E4", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_PROCID": "0",
            "SLURM_STEPID": "4294967290", "SLURM_STEP_NODELIST": "GPU71E4", "SLURM_STEP_NUM_NODES": "1",
            "SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_TASKS_PER_NODE": "1", "SLURM_TASKS_PER_NODE": "8",
            "CUDA_VISIBLE_DEVICES": "0",
        },
        dist.Gang(),
        {"worker": ["GPU71E4:8888"]},
        "0",
    ),
    "a task on each of three nodes": Step(
        {
            "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_TASKS_PER_NODE": "1(x3)",
            "SLURM_STEP_NODELIST": "t02n13,t02n41,t02n43", "CUDA_VISIBLE_DEVICES": "0",
        },
        dist.Gang("t02n13:61440", 3, 0),
        {"worker": ["t02n13:8888", "t02n41:8888", "t02n43:8888"]},
        "0",
    ),
    "two jobs with GPUs: four tasks on two nodes": Step(
        {
            "SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
            "SLURM_STEP_NODELIST": "node[1-2]", "SLURM_LOCALID": "1", "SLURM_NODEID": "1", "SLURM_JOB_ID": "2417",
        },
        dist.Gang("node1:9000", 4, 3),
        {"chief": ["node1:9000"], "worker": ["node1:9001", "node2:9000", "node2:9001"]},
        "2,3",
        {"jobs": {"worker": 3, "chief": 1}, "port_base": 9000, "gpus_per_node": 4},
    ),
    "several racks, their numbers with leading zeros, four tasks a node": Step(
        {
            "SLURM_PROCID": "10", "SLURM_STEP_NUM_TASKS": "20", "SLURM_STEP_TASKS_PER_NODE": "4(x5)",
            "SLURM_STEP_NODELIST": "jwb[0097,0117],jwc09n[000-002]", "SLURM_LOCALID": "2", "SLURM_JOB_ID": "9876543",
            "CUDA_VISIBLE_DEVICES": "0,1,2,3",
        },
        dist.Gang("jwb0097:63987", 20, 10),
        {"worker": [f"{host}:{port}" for host in ("jwb0097", "jwb0117", "jwc09n000", "jwc09n001", "jwc09n002")
                    for port in range(8888, 8892)]},
        "2",
    ),
    "more tasks on the first node, no GPUs": Step(
        {
            "SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "17", "SLURM_STEP_TASKS_PER_NODE": "5,4(x3)",
            "SLURM_STEP_NODELIST": "nid00[1008-1011]", "SLURM_LOCALID": "0", "SLURM_NODEID": "1", "SLURM_JOB_ID": "42",
            "CUDA_VISIBLE_DEVICES": "",
        },
        dist.Gang("nid001008:61482", 17, 5),
        {"worker": [f"nid00{1008 + node}:{8888 + task}" for node in range(4) for task in range(5 if node == 0 else 4)]},
        "",
    ),
    "GPUs that Slurm has bound to each task": Step(
        {
            "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
            "SLURM_STEP_NODELIST": "gpu-[3,7]", "SLURM_LOCALID": "1", "SLURM_GPUS_PER_TASK": "2",
            "SLURM_JOB_ID": "5000", "CUDA_VISIBLE_DEVICES": "0,1",
        },
        dist.Gang("gpu-3:62346", 4, 1),
        {"worker": ["gpu-3:8888", "gpu-3:8889", "gpu-7:8888", "gpu-7:8889"]},
        "0,1",
    ),
    "hosts whose names do not sort as their numbers do": Step(
        {
            "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_TASKS_PER_NODE": "1(x3)",
            "SLURM_STEP_NODELIST": "n[9-11]", "SLURM_LOCALID": "0", "SLURM_JOB_ID": "1", "CUDA_VISIBLE_DEVICES": "4,7",
        },
        dist.Gang("n9:61441", 3, 0, (0, 1)),
        {"worker": ["n10:8888", "n11:8888", "n9:8888"]},
        "4,7",
        {"auto_set_gpu": False},
    ),
}  # fmt: skip


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_task_finds_its_gang_in_the_environment_of_its_step(step: Step) -> None:
    with cluster_environment(step.environment):
        resolver = SlurmClusterResolver(**step.arguments)
        assert resolver.gang() == step.gang
        assert resolver.cluster_spec().as_dict() == step.cluster
        assert os.environ.get("CUDA_VISIBLE_DEVICES") == step.gpus_visible
        assert resolver.gang() == step.gang, "asking twice changes nothing"


FOUR = {
    "SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "",
}  # fmt: skip


def test_a_gang_leaves_parameter_servers_out() -> None:
    with cluster_environment(FOUR):
        resolver = SlurmClusterResolver({"ps": 1, "worker": 3})
        assert resolver.gang() == dist.Gang("n1:61448", 3, 2)
        assert resolver.get_task_info() == ("worker", 2)
        assert resolver.master() == "grpc://n2:8889"
    with (
        cluster_environment({**FOUR, "SLURM_PROCID": "0"}),
        pytest.raises(UnsupportedError, match="'ps' takes no part"),
    ):
        SlurmClusterResolver({"ps": 1, "worker": 3}).gang()
    with (
        cluster_environment({**FOUR, "SLURM_DISTRIBUTION": "cyclic"}),
        pytest.raises(ClusterError, match=r"rank 1, and SLURM_DISTRIBUTION='cyclic' does not tell its host"),
    ):
        SlurmClusterResolver({"ps": 1, "worker": 3}).gang()


def test_tasks_of_each_host_may_be_said() -> None:
    with cluster_environment({"SLURM_PROCID": "2", "CUDA_VISIBLE_DEVICES": ""}):
        resolver = SlurmClusterResolver({"worker": 3}, tasks_per_node={"b": 2, "a": 1}, port_base=5000)
        assert resolver.cluster_spec().as_dict() == {"worker": ["a:5000", "b:5000", "b:5001"]}
        assert resolver.gang() == dist.Gang("b:5000", 3, 2)


@pytest.mark.parametrize(
    ("changes", "arguments", "error", "text"),
    [
        ({"SLURM_PROCID": None}, {}, ClusterError, "SLURM_PROCID is not set: this process is no task of a Slurm step"),
        ({"SLURM_STEP_NODELIST": None}, {}, ClusterError, "SLURM_STEP_NODELIST is not set"),
        ({"SLURM_STEP_TASKS_PER_NODE": None}, {}, ClusterError, "SLURM_STEP_TASKS_PER_NODE is not set"),
        ({"SLURM_STEP_NUM_TASKS": None}, {}, ClusterError, "SLURM_STEP_NUM_TASKS is not set"),
        ({"SLURM_PROCID": "x"}, {}, InvalidValueError, "SLURM_PROCID='x' is no number"),
        ({"SLURM_PROCID": "-1"}, {}, InvalidValueError, "SLURM_PROCID='-1' is no number"),
        ({"SLURM_PROCID": "4"}, {}, ClusterError, "SLURM_PROCID=4 is not among the 4 tasks"),
        ({"SLURM_STEP_NODELIST": ""}, {}, ClusterError, "names 0 hosts"),
        ({"SLURM_STEP_NODELIST": "n1,n1"}, {}, ClusterError, "names 2 hosts, 1 different ones"),
        ({"SLURM_STEP_TASKS_PER_NODE": "2"}, {}, ClusterError, "names 2 hosts, 2 different ones, and"),
        ({}, {"jobs": {"worker": 5}}, ClusterError, "have 5 tasks; Slurm started 4"),
        ({}, {"jobs": {"worker": -4}}, InvalidValueError, "job 'worker' must have a number of tasks; got -4"),
        ({}, {"gpus_per_node": 1, "gpus_per_task": 1}, ClusterError, "2 tasks a node of 1 GPUs each need more than"),
        ({}, {"gpus_per_node": -1}, InvalidValueError, "gpus_per_node must be a number from 0 to 1024; got -1"),
        ({}, {"port_base": 0}, InvalidValueError, "0 is no port; use a number from 1 to 65534"),
        ({}, {"port_base": 65_535}, InvalidValueError, "65535 is no port; use a number from 1 to 65534"),
        ({}, {"tasks_per_node": 0}, InvalidValueError, "tasks_per_node of 'n1' must be at least 1; got 0"),
        ({"SLURM_LOCALID": "2"}, {"gpus_per_node": 2}, ClusterError, "SLURM_LOCALID=2 has no 1 GPUs on a node of 2"),
    ],
)
def test_a_step_that_does_not_fit_is_refused_by_name(
    changes: dict[str, str | None], arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    environment = {name: value for name, value in {**FOUR, **changes}.items() if value is not None}
    with cluster_environment(environment), pytest.raises(error) as refused:
        SlurmClusterResolver(**arguments).gang()
    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n1", ["n1"]),
        ("n[1-2],m5,o[3-4,6,7-9]", ["n1", "n2", "m5", "o3", "o4", "o6", "o7", "o8", "o9"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[0-6:2],m[1-9/4]", ["n0", "n2", "n4", "n6", "m1", "m5", "m9"]),
        ("[1-2]", ["1", "2"]),
        ("", []),
        ("n1,", ["n1"]),
        ("127.0.0.[1-2]", ["127.0.0.1", "127.0.0.2"]),
    ],
)
def test_a_hostlist_is_expanded_in_its_order(text: str, hosts: list[str]) -> None:
    assert expand_hostlist(text) == hosts


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("n[1-2]x", "'n[1-2]x' is no host; it may have one [...], at its end"),
        ("n[1-2][3-4]", "is no host"),
        ("n[1", "is no host"),
        ("n1]", "is no host"),
        ("n[]", "is no host"),
        ("n[[1]]", "is no host"),
        ("n 1", "is no host"),
        (",n1", "a host is missing before a comma"),
        ("n1,,n2", "a host is missing before a comma"),
        ("n[1-2-3]", "'1-2-3' is no range; write 3, 3-5 or 3-9:2"),
        ("n[a-b]", "is no range"),
        ("n[1,]", "'' is no range"),
        ("n[3-1]", "'3-1' is an empty range"),
        ("n[1-3:0]", "is an empty range"),
        ("n[1-999999999999]", "it has more than 65536 hosts"),
        ("a[1-65536],b", "it has more than 65536 hosts"),
        ("n" * 300_000, "must be a text of at most 262144 characters"),
    ],
)
def test_a_hostlist_of_another_form_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        expand_hostlist(text)
    assert why in str(refused.value)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("text", "counts"), [("2(x3),1", [2, 2, 2, 1]), ("13(x10)", [13] * 10), ("3(x2),2,11(x4)", [3, 3, 2, *[11] * 4])]
)
def test_counts_of_tasks_are_expanded_in_their_order(text: str, counts: list[int]) -> None:
    assert expand_tasks_per_node(text) == counts


@pytest.mark.parametrize("text", ["", "2(x3", "2x3", "2(x0)", "-1", "1,,2", "2(x999999)", "1 ", "\u0663"])
def test_counts_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(InvalidValueError, match="is no count; write tasks or tasks"):
        expand_tasks_per_node(text)
