"""The hosts of a TPU slice from addresses, the environment and a metadata server; what is refused."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

import drumline.distribute as dist
from drumline.distribute.cluster_resolver import TPUClusterResolver
from drumline.distribute.errors import ClusterError, InvalidValueError, UnsupportedError
from support.cluster_environment import cluster_environment

ALONE = {"TPU_SKIP_MDS_QUERY": "1"}
FOUR = {**ALONE, "TPU_WORKER_HOSTNAMES": "t0,t1,t2,t3", "TPU_WORKER_ID": "2"}


def test_local_is_this_machine_alone() -> None:
    resolver = TPUClusterResolver("local")
    assert (resolver.cluster_spec().as_dict(), resolver.master(), resolver.gang()) == ({}, "", dist.Gang())
    assert resolver.num_accelerators() == {"TPU": 0}


def test_local_is_alone_also_where_several_slices_are_told() -> None:
    with cluster_environment({**ALONE, "MEGASCALE_NUM_SLICES": "2", "TPU_WORKER_ID": "0"}):
        assert TPUClusterResolver("local").gang() == dist.Gang()


def test_what_is_no_metadata_server_tells_of_no_slice() -> None:
    with cluster_environment({"GCE_METADATA_HOST": "bad host"}), pytest.raises(InvalidValueError, match="no TPU is"):
        TPUClusterResolver("")


def test_a_list_of_hosts_is_bounded() -> None:
    with pytest.raises(InvalidValueError, match="tpu has 200000 characters"):
        TPUClusterResolver("a" * 200_000)


def test_addresses_are_the_hosts() -> None:
    with cluster_environment({**ALONE, "TPU_WORKER_ID": "1"}):
        resolver = TPUClusterResolver(
            "grpc://10.0.0.2:8470,10.0.0.3:8471", coordinator_name="c", coordinator_address="h:1"
        )
        assert resolver.cluster_spec() == {"worker": ["10.0.0.2:8470", "10.0.0.3:8471"], "c": ["h:1"]}
        assert resolver.master() == resolver.get_master() == "grpc://10.0.0.2:8470"
        assert resolver.master("worker", 1) == "grpc://10.0.0.3:8471"
        assert resolver.gang() == dist.Gang("10.0.0.2:8482", 2, 1)
        assert resolver.get_coordination_service_leader() == "/job:worker/task:0"


@pytest.mark.parametrize("tpu", [None, "", "my-slice"])
def test_the_environment_tells_the_slice_and_which_of_its_hosts_this_is(tpu: str | None) -> None:
    with cluster_environment({**FOUR, "TPU_NAME": "my-slice"}):
        resolver = TPUClusterResolver(tpu)
        assert resolver.cluster_spec() == {"worker": [f"t{host}:8470" for host in range(4)]}
        assert resolver.gang() == dist.Gang("t0:8482", 4, 2)


def test_several_slices_are_one_gang() -> None:
    slices = {"MEGASCALE_NUM_SLICES": "2", "MEGASCALE_SLICE_ID": "1", "MEGASCALE_COORDINATOR_ADDRESS": "s0-h0:8081"}
    with cluster_environment({**FOUR, **slices}):
        assert TPUClusterResolver().gang() == dist.Gang("s0-h0:8482", 8, 6)
    with (
        cluster_environment({**FOUR, **slices, "MEGASCALE_SLICE_ID": "2"}),
        pytest.raises(InvalidValueError, match="=2"),
    ):
        TPUClusterResolver().gang()
    del slices["MEGASCALE_COORDINATOR_ADDRESS"]
    with cluster_environment({**FOUR, **slices}), pytest.raises(ClusterError, match="no MEGASCALE_COORDINATOR_ADDRESS"):
        TPUClusterResolver().gang()


@pytest.mark.parametrize(
    ("written", "host"),
    [
        ("localhost:8476,localhost:8477", "localhost"),
        ("fd00::1,fd00::2", "[fd00::1]"),
        ("[fd00::1]:8,[fd00::2]:8", "[fd00::1]"),
    ],
)
def test_processes_of_one_host_and_hosts_with_ports_are_told_apart_by_their_place(written: str, host: str) -> None:
    with cluster_environment({**ALONE, "TPU_PROCESS_ADDRESSES": written, "TPU_WORKER_ID": "1"}):
        assert TPUClusterResolver().gang() == dist.Gang(f"{host}:8482", 2, 1)


def test_endpoints_of_a_cluster_that_tells_them_are_the_hosts() -> None:
    with cluster_environment({**ALONE, "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS": "grpc://10.1.0.1:8470"}):
        resolver = TPUClusterResolver("")
        assert (resolver.master(), resolver.gang()) == ("grpc://10.1.0.1:8470", dist.Gang())


@pytest.mark.parametrize(
    ("environment", "tpu", "error", "text"),
    [
        (ALONE, "", InvalidValueError, "no TPU is told: neither TPU_WORKER_HOSTNAMES nor this machine's metadata"),
        (ALONE, "my-tpu", InvalidValueError, "no TPU 'my-tpu' is known here"),
        ({**FOUR, "TPU_NAME": "a"}, "b", InvalidValueError, "there is no TPU 'b' here; this machine is part of 'a'"),
        (ALONE, "grpc://10.0.0.2", InvalidValueError, "is no list of addresses; write 'grpc://host:port,host:port'"),
        (ALONE, "a:1,b", InvalidValueError, "is no list of addresses"),
        (ALONE, "a:1,b:70000", InvalidValueError, "70000 is no port"),
        ({**FOUR, "TPU_WORKER_ID": "4"}, "", InvalidValueError, "TPU_WORKER_ID=4 is not among the slice's 4 hosts"),
        ({**FOUR, "TPU_WORKER_ID": "x"}, "", InvalidValueError, "TPU_WORKER_ID='x' is no number"),
        ({**ALONE, "TPU_WORKER_HOSTNAMES": "a,b"}, "", ClusterError, "2 hosts and nothing tells which this one is"),
    ],
)
def test_a_slice_that_is_not_told_or_told_wrong_is_refused(
    environment: dict[str, str], tpu: str, error: type[Exception], text: str
) -> None:
    with cluster_environment(environment), pytest.raises(error) as refused:
        TPUClusterResolver(tpu).gang()
    assert text in str(refused.value)


def test_a_coordinator_without_an_address_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="coordinator 'c' has no address and no server is started here"):
        TPUClusterResolver("local", coordinator_name="c")


@contextmanager
def metadata_server(attributes: Mapping[str, str]) -> Iterator[None]:
    """A machine's metadata as a cloud serves it: only to those who say that they mean it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            value = attributes.get(self.path.removeprefix("/computeMetadata/v1/instance/attributes/"))
            is_known = value is not None and self.headers["Metadata-Flavor"] == "Google"
            self.send_response(200 if is_known else 404)
            self.end_headers()
            self.wfile.write((value or "").encode() if is_known else b"")

        def log_message(self, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        with cluster_environment({"GCE_METADATA_HOST": f"127.0.0.1:{server.server_port}"}):
            yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_machine_of_a_slice_is_told_by_its_metadata() -> None:
    told = {
        "worker-network-endpoints": "w-0:1:10.2.0.1,w-1:2:10.2.0.2",
        "agent-worker-number": "1",
        "tpu-env": "ACCELERATOR_TYPE: 'v4-16'\nNODE_ID: 'my-slice'\nZONE: 'us'\n",
    }
    with metadata_server(told):
        assert TPUClusterResolver("my-slice").gang() == dist.Gang("10.2.0.1:8482", 2, 1)
        with pytest.raises(InvalidValueError, match="there is no TPU 'other' here; this machine is part of 'my-slice'"):
            TPUClusterResolver("other")
        os.environ["TPU_WORKER_ID"] = "0"
        assert TPUClusterResolver().gang().process_id == 0


SLICES = "MEGASCALE_NUM_SLICES: '3'\nMEGASCALE_SLICE_ID: '2'\nMEGASCALE_COORDINATOR_ADDRESS: '10.1.0.1'\n"


@pytest.mark.parametrize(
    ("hosts", "worker", "gang"),
    [
        ("w-0:1:10.2.0.1,w-1:2:10.2.0.2", "1", dist.Gang("10.1.0.1:8482", 6, 5)),
        ("w-0:1:10.2.0.1", "0", dist.Gang("10.1.0.1:8482", 3, 2)),
    ],
    ids=["slices of two hosts", "slices of one host"],
)
def test_metadata_tells_of_several_slices(
    hosts: str, worker: str, gang: dist.Gang, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from drumline.distribute.cluster.initialization import find_resolver

    (tmp_path / "libtpu").mkdir()
    (tmp_path / "libtpu" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    told = {"worker-network-endpoints": hosts, "agent-worker-number": worker, "tpu-env": SLICES}
    with metadata_server(told):
        resolver = find_resolver()
        assert isinstance(resolver, TPUClusterResolver)
        assert resolver.gang() == gang
        os.environ["MEGASCALE_SLICE_ID"] = "0"
        assert resolver.gang().process_id == int(worker)


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ("MEGASCALE_NUM_SLICES: 'two'\n", InvalidValueError, "MEGASCALE_NUM_SLICES='two' is no number"),
        ("MEGASCALE_NUM_SLICES: '0'\n", InvalidValueError, "MEGASCALE_NUM_SLICES=0 is no number of slices"),
        (SLICES.replace("ID: '2'", "ID: '3'"), InvalidValueError, "MEGASCALE_SLICE_ID=3 is not among 3 slices"),
        ("MEGASCALE_NUM_SLICES: '2'\n", ClusterError, "no MEGASCALE_COORDINATOR_ADDRESS to meet at"),
    ],
)
def test_slices_that_metadata_tells_wrong_are_refused(settings: str, error: type[Exception], text: str) -> None:
    told = {"worker-network-endpoints": "w-0:1:10.2.0.1", "agent-worker-number": "0", "tpu-env": settings}
    with metadata_server(told), pytest.raises(error) as refused:
        TPUClusterResolver().gang()
    assert text in str(refused.value)


def test_a_cloud_machine_with_tpus_library_is_asked_for_its_slice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from drumline.distribute.cluster.initialization import find_resolver

    told = {"worker-network-endpoints": "w-0:1:10.2.0.1,w-1:2:10.2.0.2", "agent-worker-number": "1"}
    with metadata_server(told):
        assert find_resolver() is None
        (tmp_path / "libtpu").mkdir()
        (tmp_path / "libtpu" / "__init__.py").touch()
        monkeypatch.syspath_prepend(tmp_path)
        resolver = find_resolver()
        assert resolver is not None
        assert resolver.gang() == dist.Gang("10.2.0.1:8482", 2, 1)


class _Quiet(BaseHTTPRequestHandler):
    over = Event()

    def log_message(self, *args: Any) -> None:
        """Quiet."""


class _Body(_Quiet):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        with suppress(OSError):
            while not self.over.wait(0.2):
                self.wfile.write(b"x")


class _Headers(_Quiet):
    def do_GET(self) -> None:
        self.send_response(200)
        self.flush_headers()
        with suppress(OSError):
            while not self.over.wait(0.2):
                self.wfile.write(b"X-Slow: 1\r\n")


class _Redirects(_Quiet):
    """The other address would tell of a slice."""

    def do_GET(self) -> None:
        if self.path.startswith("/elsewhere"):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"a:b:10.0.0.9,a:c:10.0.0.8")
            return
        self.send_response(302)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.mark.parametrize("handler", [_Body, _Headers, _Redirects])
def test_metadata_that_trickles_or_points_elsewhere_is_none(handler: type[_Quiet]) -> None:
    handler.over = Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever).start()
    began = time.monotonic()
    try:
        with (
            cluster_environment({"GCE_METADATA_HOST": f"127.0.0.1:{server.server_port}"}),
            pytest.raises(InvalidValueError, match="no TPU is told"),
        ):
            TPUClusterResolver()
    finally:
        handler.over.set()
        server.shutdown()
        server.server_close()
    assert time.monotonic() - began < 15


@pytest.mark.parametrize("addresses", ["h:1,h:1", "grpc://10.0.0.2:8470,10.0.0.3:8470,10.0.0.2:8470"])
def test_two_hosts_of_one_address_are_refused(addresses: str) -> None:
    with cluster_environment(ALONE), pytest.raises(InvalidValueError, match="twice"):
        TPUClusterResolver(addresses)


def test_metadata_of_another_form_is_refused() -> None:
    with (
        metadata_server({"worker-network-endpoints": "a:b"}),
        pytest.raises(ClusterError, match="worker-network-endpoints has 'a:b', which names no host"),
    ):
        TPUClusterResolver()
    with metadata_server({}), pytest.raises(InvalidValueError, match="no TPU is told"):
        TPUClusterResolver()
