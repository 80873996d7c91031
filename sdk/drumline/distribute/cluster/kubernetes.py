"""``KubernetesClusterResolver``: the pods of a job, from their environment or from the API server."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from drumline.distribute.cluster.cluster_spec import MAX_TASKS, ClusterSpec
from drumline.distribute.cluster.gang import Gang, check_port, gang_of_tasks, number_in
from drumline.distribute.cluster.resolver import ClusterResolver
from drumline.distribute.errors import (
    ClusterError,
    DistributeWarning,
    InvalidTypeError,
    InvalidValueError,
    MissingPackageError,
)

#: Seconds for the connection and for each reply of the API server.
_REQUEST_TIMEOUT_S = (5, 30)
#: What tells a pod its place, by who sets it: Kubeflow's Trainer, its JAXJob, a LeaderWorkerSet. An indexed Job sets
#: JOB_COMPLETION_INDEX only; its manifest has to add NUM_PROCESSES and COORDINATOR_ADDRESS.
_PROCESS_ID = ("JAX_PROCESS_ID", "PROCESS_ID", "LWS_WORKER_INDEX", "JOB_COMPLETION_INDEX")
_NUM_PROCESSES = ("JAX_NUM_PROCESSES", "NUM_PROCESSES", "LWS_GROUP_SIZE")
_COORDINATOR = ("JAX_COORDINATOR_ADDRESS", "COORDINATOR_ADDRESS", "LWS_LEADER_ADDRESS")
_INDEXED_JOB = "JOB_COMPLETION_INDEX"
_COORDINATOR_PORT = "COORDINATOR_PORT"
#: Where Kubernetes tells a pod its own.
_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


class ExecutableLocation(Enum):
    """Where the program runs: in a pod of the cluster, or outside of it."""

    WITHIN_CLUSTER = 0
    OFF_CLUSTER = 1


class KubernetesClusterResolver(ClusterResolver):
    """The pods of a job on Kubernetes.

        dist.initialize(dist.cluster_resolver.KubernetesClusterResolver())

    ``gang()`` needs no package where the pod's environment tells its place: JAX_PROCESS_ID, JAX_NUM_PROCESSES and
    JAX_COORDINATOR_ADDRESS (Kubeflow Trainer), the same without JAX_ (JAXJob), LWS_WORKER_INDEX, LWS_GROUP_SIZE and
    LWS_LEADER_ADDRESS (LeaderWorkerSet), or JOB_COMPLETION_INDEX (indexed Job) with NUM_PROCESSES and
    COORDINATOR_ADDRESS in its manifest. Otherwise the pods are listed; this process is the one that HOSTNAME names,
    unless ``task_type`` and ``task_id`` are set.

    ``job_to_label_mapping``: label selectors of each job's pods, {"worker": ["job-name=tensorflow"]} by default.
    ``tf_server_port``: the port of every task. ``override_client``: a ``CoreV1Api`` that is configured already.
    ``executable_location``: which credentials are loaded otherwise. ``namespaces``: where pods are looked for, in this
    order; None for all, as TensorFlow does, which needs the right to list the pods of the whole cluster.

    Listing pods raises MissingPackageError (an ImportError) without the ``kubernetes`` package, and ClusterError (a
    RuntimeError) for a pod that is not running. Raises InvalidValueError for a port or a location that is none.
    """

    def __init__(
        self,
        job_to_label_mapping: Mapping[str, Sequence[str]] | None = None,
        tf_server_port: int = 8470,
        rpc_layer: str | None = "grpc",
        override_client: Any = None,
        executable_location: ExecutableLocation = ExecutableLocation.WITHIN_CLUSTER,
        *,
        namespaces: Sequence[str] | None = None,
    ) -> None:
        super().__init__(rpc_layer=rpc_layer)
        if not isinstance(executable_location, ExecutableLocation):
            raise InvalidValueError(
                f"executable_location must be WITHIN_CLUSTER or OFF_CLUSTER; got {executable_location!r:.80}"
            )
        self._selectors = _check_selectors(job_to_label_mapping or {"worker": ["job-name=tensorflow"]})
        self._port = check_port(tf_server_port)
        self._client = override_client
        self._location = executable_location
        self._namespaces = None if namespaces is None else _check_namespaces(namespaces)

    def cluster_spec(self) -> ClusterSpec:
        """The running pods' hosts, sorted by the pods' names, as they are now."""
        return ClusterSpec(
            {job: [_address(pod, "host_ip", self._port) for pod in pods] for job, pods in self._pods().items()}
        )

    def gang(self) -> Gang:
        if is_told_by_environment():
            return _gang_of_environment(self._port)
        pods = self._pods()
        job, index = self._own_task(pods)
        spec = {name: [_address(pod, "pod_ip", self._port) for pod in found] for name, found in pods.items()}
        return gang_of_tasks(ClusterSpec(spec), job, index)

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        return self._task_master(task_type, task_id, rpc_layer)

    def _pods(self) -> dict[str, list[Any]]:
        """Any: what the client's package defines."""
        client = self._client if self._client is not None else _connect(self._location)
        return {
            job: [pod for selector in selectors for pod in self._list_running(client, selector)]
            for job, selectors in self._selectors.items()
        }

    def _list_running(self, client: Any, selector: str) -> list[Any]:
        if self._namespaces is None:
            return _list_running(client.list_pod_for_all_namespaces, selector)
        within = (partial(client.list_namespaced_pod, namespace) for namespace in self._namespaces)
        return [pod for list_pods in within for pod in _list_running(list_pods, selector)]

    def _own_task(self, pods: Mapping[str, list[Any]]) -> tuple[str | None, int | None]:
        if self.task_type is not None and self.task_id is not None:
            return self.task_type, self.task_id
        name, own = os.environ.get("HOSTNAME", ""), _own_namespace()
        named = [
            (_namespace(pod), job, index)
            for job, found in pods.items()
            for index, pod in enumerate(found)
            if pod.metadata.name == name
        ]
        tasks = [(job, index) for namespace, job, index in named if own is None or namespace in (None, own)]
        if len(tasks) == 1:
            return tasks[0]
        if tasks:
            where = ", ".join(sorted({str(namespace) for namespace, _, _ in named}))
            raise ClusterError(
                f"HOSTNAME={name!r:.80} is the name of {len(tasks)} pods, in the namespaces {where:.200}: pass "
                "namespaces=, set POD_NAMESPACE from the pod's metadata.namespace, or set the resolver's task_type and "
                "task_id"
            )
        raise ClusterError(
            f"HOSTNAME={name!r:.80} is none of the job's {sum(map(len, pods.values()))} pods; set the resolver's "
            "task_type and task_id"
        )


def is_part_of_gang() -> bool:
    """Whether the environment names a gang, complete or not; every pod of an indexed Job has a number, also alone."""
    told = [name for names in (_PROCESS_ID, _NUM_PROCESSES, _COORDINATOR) if (name := _first(names)) is not None]
    return is_told_by_environment() and told != [_INDEXED_JOB]


def warn_of_unknown_number() -> None:
    """Warns in a pod of an indexed Job that is told nothing of a gang: it may have been meant to be one of one.

    JAX takes the Job's parallelism from the API server for that, which is the number of pods at a time: of a Job that
    has more completions, or whose pods are tasks of their own, it is no gang's.
    """
    if is_told_by_environment() and not is_part_of_gang():
        warnings.warn(
            f"{_INDEXED_JOB} says that this pod is one of an indexed Job, and nothing how many compute together, so it "
            "runs alone: for one gang of all pods set NUM_PROCESSES (the Job's completions, which its parallelism must "
            "equal) and COORDINATOR_ADDRESS (<job>-0.<subdomain>) in the manifest; to run alone without this warning "
            "pass SimpleClusterResolver(ClusterSpec({}))",
            DistributeWarning,
            stacklevel=4,
        )


def is_told_by_environment() -> bool:
    """Whether the pod's environment says which process of a gang it is."""
    return (_first(_PROCESS_ID) is not None and "KUBERNETES_SERVICE_HOST" in os.environ) or is_complete()


def is_complete() -> bool:
    """Whether process, number and coordinator are all told."""
    return all(_first(names) is not None for names in (_PROCESS_ID, _NUM_PROCESSES, _COORDINATOR))


def _gang_of_environment(default_port: int) -> Gang:
    process, count, coordinator = (_first(names) for names in (_PROCESS_ID, _NUM_PROCESSES, _COORDINATOR))
    if process is None or count is None or coordinator is None:
        missing = [" or ".join(names) for names in (_PROCESS_ID, _NUM_PROCESSES, _COORDINATOR) if _first(names) is None]
        raise ClusterError(
            f"the pod's environment has {process or count or coordinator} but not {', nor '.join(missing)}; add it to "
            "the pod's manifest"
        )
    port = number_in(os.environ, _COORDINATOR_PORT) if _COORDINATOR_PORT in os.environ else default_port
    address = os.environ[coordinator]
    has_port = ":" in (address.rpartition("]")[2] if address.startswith("[") else address)
    return Gang(
        address if has_port else f"{address}:{check_port(port)}",
        number_in(os.environ, count),
        number_in(os.environ, process),
    )


def _first(names: Sequence[str]) -> str | None:
    return next((name for name in names if os.environ.get(name)), None)


def _connect(location: ExecutableLocation) -> Any:
    """A client of the API server. Any: the package is not ours to import before it is needed."""
    try:
        config, client = import_module("kubernetes.config"), import_module("kubernetes.client")
    except ImportError:
        raise MissingPackageError(
            "listing pods needs the kubernetes package: pip install kubernetes; or let the pod's manifest set "
            "JAX_PROCESS_ID, JAX_NUM_PROCESSES and JAX_COORDINATOR_ADDRESS",
            name="kubernetes",
        ) from None
    try:
        if location is ExecutableLocation.OFF_CLUSTER:
            config.load_kube_config()
        else:
            config.load_incluster_config()
    except config.ConfigException as error:
        raise ClusterError(f"no credentials for the cluster's API server were found: {error}") from None
    return client.CoreV1Api()


def _list_running(list_pods: Callable[..., Any], selector: str) -> list[Any]:
    """The pods, sorted by name and namespace so that every process lists them in one order."""
    try:
        listed = list_pods(label_selector=selector, limit=MAX_TASKS, _request_timeout=_REQUEST_TIMEOUT_S)
    except Exception as error:
        raise ClusterError(f"the pods of {selector!r:.120} can't be listed: {error!s:.400}") from error
    pods = sorted(listed.items, key=lambda pod: (str(pod.metadata.name), str(_namespace(pod))))
    for pod in pods:
        if pod.status.phase != "Running":
            raise ClusterError(
                f"pod {pod.metadata.name!r} is {pod.status.phase}, not Running; wait until all pods of {selector!r} run"
            )
    return pods


def _namespace(pod: Any) -> str | None:
    return getattr(pod.metadata, "namespace", None)


def _own_namespace() -> str | None:
    """The namespace of this process's pod; None where nothing tells it."""
    if told := os.environ.get("POD_NAMESPACE"):
        return told
    try:
        return _OWN_NAMESPACE.read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _is_texts(given: object) -> bool:
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes)):
        return False
    return all(isinstance(one, str) for one in given)


def _check_namespaces(namespaces: Sequence[str]) -> list[str]:
    if not _is_texts(namespaces):
        raise InvalidTypeError(f"namespaces must be a list such as ['team-a']; got {namespaces!r:.80}")
    wrong = [namespace for namespace in namespaces if not _NAMESPACE.fullmatch(namespace)]
    if wrong or not namespaces or len(set(namespaces)) < len(namespaces):
        raise InvalidValueError(
            f"namespaces must be different names of lower-case letters, digits and '-', at least one; got "
            f"{(wrong or namespaces)!r:.120}"
        )
    return [*namespaces]


def _address(pod: Any, field: str, port: int) -> str:
    host = getattr(pod.status, field)
    if not host:
        raise ClusterError(f"pod {pod.metadata.name!r} has no {field} yet; wait until it has an address")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _check_selectors(mapping: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    if not isinstance(mapping, Mapping):
        raise InvalidTypeError(
            f"job_to_label_mapping must be a dict such as {{'worker': ['job-name=tensorflow']}}; got {mapping!r:.80}"
        )
    for job, selectors in mapping.items():
        if not _is_texts(selectors):
            raise InvalidTypeError(f"job {job!r:.80} needs a list of label selectors; got {selectors!r:.80}")
    return {job: list(selectors) for job, selectors in mapping.items()}
