"""Programs of clusters: specs, resolvers and Slurm's short forms. No process is started."""

from __future__ import annotations

import os
from typing import Any

import drumline.distribute as dist
from conformance.loader import Case
from conformance.registry import program
from drumline.distribute import cluster_resolver
from support.cluster_environment import cluster_environment


@program("cluster_spec")
def cluster_spec(case: Case) -> dict[str, Any]:
    spec = dist.ClusterSpec(case.inputs["spec"])
    return {
        "as_dict": as_json(spec),
        "jobs": spec.jobs,
        "num_tasks": {job: spec.num_tasks(job) for job in spec.jobs},
        "task_indices": {job: spec.task_indices(job) for job in spec.jobs},
        "job_tasks": {job: spec.job_tasks(job) for job in spec.jobs},
        "truthy": bool(spec),
    }


@program("cluster_spec_task_address")
def task_address(case: Case) -> dict[str, Any]:
    spec = dist.ClusterSpec(case.inputs["spec"])
    return {"value": spec.task_address(case.inputs["job"], case.inputs["index"])}


@program("simple_resolver")
def simple_resolver(case: Case) -> dict[str, Any]:
    inputs = case.inputs
    resolver = cluster_resolver.SimpleClusterResolver(
        dist.ClusterSpec(inputs["spec"]),
        **{name: inputs[name] for name in ("master", "task_type", "task_id", "rpc_layer") if name in inputs},
    )
    return described(resolver) | {"master_ps0": resolver.master("ps", 0)}


@program("simple_resolver_num_accelerators")
def simple_accelerators(case: Case) -> dict[str, Any]:
    given = case.inputs["num_accelerators"]
    resolver = cluster_resolver.SimpleClusterResolver(dist.ClusterSpec({}), num_accelerators=given)
    return {"num_accelerators": resolver.num_accelerators()}


@program("simple_resolver_with_dict_instead_of_cluster_spec")
def simple_of_dict(case: Case) -> dict[str, Any]:
    return described(cluster_resolver.SimpleClusterResolver(case.inputs["spec"]))


@program("union_resolver", "union_resolver_sparse_conflict")
def union(case: Case) -> dict[str, Any]:
    resolver = cluster_resolver.UnionResolver(
        *(
            cluster_resolver.SimpleClusterResolver(dist.ClusterSpec(spec), task_type=next(iter(spec), None))
            for spec in case.inputs["specs"]
        )
    )
    return {"as_dict": as_json(resolver.cluster_spec()), "task_type": resolver.task_type}


@program("union_resolver_without_arguments")
def union_of_none(case: Case) -> dict[str, Any]:
    return described(cluster_resolver.UnionResolver())


@program("tf_config_resolver", "tf_config_resolver_with_overrides")
def tf_config(case: Case) -> dict[str, Any]:
    overrides = {name: case.inputs[name] for name in ("task_type", "task_id", "rpc_layer") if name in case.inputs}
    with cluster_environment({"TF_CONFIG": case.inputs["TF_CONFIG"]}):
        resolver = cluster_resolver.TFConfigClusterResolver(**overrides)
        return {"cluster": as_json(resolver.cluster_spec())} | described(resolver)


@program("slurm_expand_hostlist")
def hostlist(case: Case) -> dict[str, Any]:
    return {"expanded": cluster_resolver.expand_hostlist(case.inputs["text"])}


@program("slurm_expand_tasks_per_node")
def tasks_per_node(case: Case) -> dict[str, Any]:
    return {"expanded": cluster_resolver.expand_tasks_per_node(case.inputs["text"])}


@program("slurm_resolver")
def slurm(case: Case) -> dict[str, Any]:
    names = ("jobs", "port_base", "gpus_per_node", "gpus_per_task")
    with cluster_environment(case.inputs["env"]):
        resolver = cluster_resolver.SlurmClusterResolver(
            **{name: case.inputs[name] for name in names if name in case.inputs}
        )
        return {
            "cluster": as_json(resolver.cluster_spec()),
            "task_type": resolver.task_type,
            "task_id": resolver.task_id,
            "master": resolver.master(),
            "num_accelerators": resolver.num_accelerators(),
            "gpus_visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        }


def described(resolver: cluster_resolver.ClusterResolver) -> dict[str, Any]:
    return {
        "master": resolver.master(),
        "task_type": resolver.task_type,
        "task_id": resolver.task_id,
        "rpc_layer": resolver.rpc_layer,
        "environment": resolver.environment,
    }


def as_json(spec: dist.ClusterSpec) -> dict[str, Any]:
    """Indices of sparse jobs as JSON has them: texts."""
    return {
        job: tasks if isinstance(tasks, list) else {str(index): address for index, address in tasks.items()}
        for job, tasks in spec.as_dict().items()
    }
