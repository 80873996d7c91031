"""Pods find their gang in what their launcher tells them, or among the pods that the API server lists."""

from types import SimpleNamespace
from typing import Any

import pytest

import drumline.distribute as dist
from drumline.distribute.cluster_resolver import KubernetesClusterResolver, KubernetesExecutableLocation
from drumline.distribute.errors import ClusterError, InvalidTypeError, InvalidValueError, MissingPackageError
from support.cluster_environment import cluster_environment

IN_CLUSTER = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}


@pytest.mark.parametrize(
    ("environment", "gang"),
    [
        (
            {"JAX_PROCESS_ID": "1", "JAX_NUM_PROCESSES": "3", "JAX_COORDINATOR_ADDRESS": "train-node-0-0.train:29500"},
            dist.Gang("train-node-0-0.train:29500", 3, 1),
        ),
        (
            {
                "PROCESS_ID": "0",
                "NUM_PROCESSES": "2",
                "COORDINATOR_ADDRESS": "jax-0",
                "COORDINATOR_PORT": "6666",
            },
            dist.Gang("jax-0:6666", 2, 0),
        ),
        (
            {"LWS_WORKER_INDEX": "3", "LWS_GROUP_SIZE": "4", "LWS_LEADER_ADDRESS": "lws-0.lws.default"},
            dist.Gang("lws-0.lws.default:8470", 4, 3),
        ),
        (
            {"JOB_COMPLETION_INDEX": "5", "NUM_PROCESSES": "8", "COORDINATOR_ADDRESS": "[fd00::5]"},
            dist.Gang("[fd00::5]:8470", 8, 5),
        ),
    ],
    ids=["Kubeflow Trainer", "JAXJob", "LeaderWorkerSet", "indexed Job"],
)
def test_a_pod_that_is_told_its_place_needs_no_package(environment: dict[str, str], gang: dist.Gang) -> None:
    with cluster_environment({**IN_CLUSTER, **environment}):
        assert KubernetesClusterResolver().gang() == gang


@pytest.mark.parametrize(
    ("environment", "error", "text"),
    [
        (
            {"JOB_COMPLETION_INDEX": "5"},
            ClusterError,
            "the pod's environment has JOB_COMPLETION_INDEX but not JAX_NUM_PROCESSES or NUM_PROCESSES or "
            "LWS_GROUP_SIZE, nor JAX_COORDINATOR_ADDRESS or",
        ),
        (
            {"PROCESS_ID": "2", "NUM_PROCESSES": "2", "COORDINATOR_ADDRESS": "a:1"},
            InvalidValueError,
            "process 2 is not in a gang of 2",
        ),
        (
            {"PROCESS_ID": "0", "NUM_PROCESSES": "two", "COORDINATOR_ADDRESS": "a:1"},
            InvalidValueError,
            "NUM_PROCESSES='two' is no number",
        ),
        (
            {"PROCESS_ID": "0", "NUM_PROCESSES": "2", "COORDINATOR_ADDRESS": "a", "COORDINATOR_PORT": "70000"},
            InvalidValueError,
            "70000 is no port",
        ),
        (
            {"PROCESS_ID": "0", "NUM_PROCESSES": "2", "COORDINATOR_ADDRESS": "a b:1"},
            InvalidValueError,
            "'a b:1' is no address",
        ),
    ],
)
def test_a_pod_that_is_told_too_little_or_nonsense_says_what(
    environment: dict[str, str], error: type[Exception], text: str
) -> None:
    with cluster_environment({**IN_CLUSTER, **environment}), pytest.raises(error) as refused:
        KubernetesClusterResolver().gang()
    assert text in str(refused.value)


class Pods:
    """Answers as ``CoreV1Api`` does, for the one call that a resolver makes."""

    def __init__(self, **by_selector: list[tuple[str, str, str]]) -> None:
        self._by_selector = by_selector

    def list_pod_for_all_namespaces(self, *, label_selector: str, limit: int, _request_timeout: tuple[int, int]) -> Any:
        assert limit > 0
        assert 0 < sum(_request_timeout) < 60
        pods = self._by_selector[label_selector.partition("=")[2]]
        return SimpleNamespace(
            items=[
                SimpleNamespace(
                    metadata=SimpleNamespace(name=name),
                    status=SimpleNamespace(phase=phase, host_ip=f"10.0.0.{ip}", pod_ip=f"10.244.0.{ip}"),
                )
                for name, phase, ip in pods
            ]
        )


PODS = Pods(
    tensorflow=[("w-1", "Running", "2"), ("w-0", "Running", "1"), ("w-2", "Running", "3")],
    chief=[("c-0", "Running", "9")],
    waiting=[("p-0", "Pending", "1")],
)


def test_pods_are_sorted_by_name_and_their_hosts_are_the_cluster() -> None:
    resolver = KubernetesClusterResolver(override_client=PODS, tf_server_port=5000)

    assert resolver.cluster_spec() == {"worker": ["10.0.0.1:5000", "10.0.0.2:5000", "10.0.0.3:5000"]}
    assert resolver.master() == ""
    assert resolver.master("worker", 1) == "grpc://10.0.0.2:5000"


def test_a_pod_finds_itself_by_its_name_and_meets_the_others_at_the_first_pods_address() -> None:
    labels = {"worker": ["job-name=tensorflow"], "chief": ["job-name=chief"]}
    resolver = KubernetesClusterResolver(labels, override_client=PODS)
    with cluster_environment({"HOSTNAME": "w-1"}):
        assert resolver.gang() == dist.Gang("10.244.0.9:8470", 4, 2)
    with cluster_environment({"HOSTNAME": "x"}):
        with pytest.raises(ClusterError, match="HOSTNAME='x' is none of the job's 4 pods; set the resolver's"):
            resolver.gang()
        resolver.task_type, resolver.task_id = "chief", 0
        assert resolver.gang().process_id == 0


class NamespacedPods:
    """Pods of several namespaces, as ``CoreV1Api`` lists them."""

    def __init__(self, **by_namespace: list[str]) -> None:
        self._by_namespace = by_namespace

    def list_namespaced_pod(self, namespace: str, **_: Any) -> Any:
        first = 1 + 100 * [*self._by_namespace].index(namespace)
        return SimpleNamespace(
            items=[
                SimpleNamespace(
                    metadata=SimpleNamespace(name=name, namespace=namespace),
                    status=SimpleNamespace(phase="Running", host_ip=f"10.0.0.{ip}", pod_ip=f"10.244.0.{ip}"),
                )
                for ip, name in enumerate(self._by_namespace[namespace], first)
            ]
        )

    def list_pod_for_all_namespaces(self, **_: Any) -> Any:
        listed = [pod for namespace in self._by_namespace for pod in self.list_namespaced_pod(namespace).items]
        return SimpleNamespace(items=listed)


TWO_TEAMS = NamespacedPods(teamb=["w-1", "w-0"], teama=["w-0"])


def test_pods_of_all_namespaces_are_listed_in_one_order() -> None:
    resolver = KubernetesClusterResolver(override_client=TWO_TEAMS)

    assert resolver.cluster_spec() == {"worker": ["10.0.0.101:8470", "10.0.0.2:8470", "10.0.0.1:8470"]}


@pytest.mark.parametrize(("namespace", "process"), [("teama", 0), ("teamb", 1)])
def test_a_pod_of_a_name_that_two_namespaces_have_finds_itself_by_its_own(namespace: str, process: int) -> None:
    resolver = KubernetesClusterResolver(override_client=TWO_TEAMS)
    with cluster_environment({"HOSTNAME": "w-0", "POD_NAMESPACE": namespace}):
        assert resolver.gang() == dist.Gang("10.244.0.101:8470", 3, process)


def test_a_pod_of_a_name_that_two_namespaces_have_is_refused_where_nothing_tells_its_own() -> None:
    resolver = KubernetesClusterResolver(override_client=TWO_TEAMS)
    with (
        cluster_environment({"HOSTNAME": "w-0"}),
        pytest.raises(
            ClusterError, match="'w-0' is the name of 2 pods, in the namespaces teama, teamb: pass namespaces="
        ),
    ):
        resolver.gang()


def test_pods_are_looked_for_in_the_namespaces_that_are_said() -> None:
    of_one = KubernetesClusterResolver(override_client=TWO_TEAMS, namespaces=["teamb"])
    with cluster_environment({"HOSTNAME": "w-0"}):
        assert of_one.gang() == dist.Gang("10.244.0.2:8470", 2, 0)
    of_both = KubernetesClusterResolver(override_client=TWO_TEAMS, namespaces=["teamb", "teama"])
    assert of_both.cluster_spec() == {"worker": ["10.0.0.2:8470", "10.0.0.1:8470", "10.0.0.101:8470"]}


@pytest.mark.parametrize(
    ("namespaces", "error"),
    [("teama", InvalidTypeError), ([1], InvalidTypeError), ([], InvalidValueError), (["a", "a"], InvalidValueError),
     (["A b"], InvalidValueError), (["a/../b"], InvalidValueError), (["x" * 64], InvalidValueError)],
    ids=str,
)  # fmt: skip
def test_namespaces_that_are_none_are_refused_by_name(namespaces: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="namespaces must be"):
        KubernetesClusterResolver(namespaces=namespaces)


def test_a_pod_without_an_address_is_refused_and_one_of_ipv6_is_bracketed() -> None:
    def pods(ip: str | None) -> Any:
        status = SimpleNamespace(phase="Running", host_ip=ip, pod_ip=ip)
        items = [SimpleNamespace(metadata=SimpleNamespace(name="w-0"), status=status)]
        return SimpleNamespace(list_pod_for_all_namespaces=lambda **_: SimpleNamespace(items=items))

    assert KubernetesClusterResolver(override_client=pods("fd00::5")).cluster_spec() == {"worker": ["[fd00::5]:8470"]}
    with pytest.raises(ClusterError, match="pod 'w-0' has no host_ip yet"):
        KubernetesClusterResolver(override_client=pods(None)).cluster_spec()


def test_labels_that_are_no_dict_are_refused_by_name() -> None:
    wrong: Any = "a=b"
    with pytest.raises(InvalidTypeError, match="job_to_label_mapping must be a dict"):
        KubernetesClusterResolver(wrong)


def test_an_error_of_the_api_server_is_a_cluster_error() -> None:
    class Refuses:
        def list_pod_for_all_namespaces(self, **arguments: Any) -> Any:
            raise OSError(f"(403) Forbidden {len(arguments)}")

    with pytest.raises(ClusterError, match=r"pods of 'job-name=tensorflow' can't be listed: \(403\) Forbidden"):
        KubernetesClusterResolver(override_client=Refuses()).cluster_spec()


def test_a_pod_that_does_not_run_is_named() -> None:
    resolver = KubernetesClusterResolver({"worker": ["job-name=waiting"]}, override_client=PODS)
    with pytest.raises(ClusterError, match="pod 'p-0' is Pending, not Running; wait until all pods of 'job"):
        resolver.cluster_spec()


def test_without_the_package_the_error_says_how_to_get_it() -> None:
    with cluster_environment({}), pytest.raises(MissingPackageError, match="pip install kubernetes; or let the pod's"):
        KubernetesClusterResolver().cluster_spec()
    with cluster_environment({}), pytest.raises(ImportError):
        KubernetesClusterResolver(executable_location=KubernetesExecutableLocation.OFF_CLUSTER).gang()


def test_arguments_that_are_none_are_refused_by_name() -> None:
    wrong: Any = "here"
    with pytest.raises(InvalidValueError, match="executable_location must be WITHIN_CLUSTER or OFF_CLUSTER; got"):
        KubernetesClusterResolver(executable_location=wrong)
    with pytest.raises(InvalidValueError, match="0 is no port"):
        KubernetesClusterResolver(tf_server_port=0)
    with pytest.raises(InvalidTypeError, match="job 'worker' needs a list of label selectors; got 'a=b'"):
        KubernetesClusterResolver({"worker": "a=b"})
