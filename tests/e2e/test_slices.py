"""Simulated slices, with real processes: `drumline up --simulate`, TPUStrategy on boxes of it, what cannot be."""

from collections.abc import Iterator

import pytest

from drumline import Client, Run
from drumline.contracts.spec import Platform, TpuSpec
from drumline.errors import DrumlineError, TooManyReplicasError
from e2e.seen import connect
from support.deployment import QUICKER, Deployment
from support.processes import wait_until
from support.programs import ENDLESS, Programs

END_S = 180.0

#: The page's own example, and nothing of Drumline in it but the engine.
OWN_STRATEGY = """
    import jax.numpy as jnp

    import drumline.distribute as dist


    def main(run):
        \"\"\"Builds a TPUStrategy itself, as on any TPU.\"\"\"
        resolver = dist.cluster_resolver.TPUClusterResolver(tpu="")
        dist.initialize(resolver)
        topology = dist.tpu.initialize_tpu_system(resolver)
        assignment = dist.tpu.DeviceAssignment.build(topology, computation_shape=[1, 1, 1, 2], num_replicas=4)
        strategy = dist.TPUStrategy(resolver, experimental_device_assignment=assignment)

        def step(x):
            y = strategy.experimental_split_to_logical_devices(x + x, [2, 1])
            return dist.all_reduce("sum", y.sum())

        total = strategy.run(step, args=(jnp.ones((4, 2)),))
        return {"mesh": topology.mesh_shape.tolist(), "total": float(strategy.local_results(total)[0])}
"""
JOB_STRATEGY = """
    import jax.numpy as jnp

    import drumline.distribute as dist


    def main(run):
        \"\"\"Uses the strategy of the job: replicas of several devices.\"\"\"
        strategy = run.strategy
        with strategy.scope():
            weights = dist.Variable(jnp.ones((4, 4)), name="weights")

        def step():
            y = strategy.experimental_split_to_logical_devices(weights.value * 2, [2, 2])
            return dist.all_reduce("mean", y.mean())

        mean = strategy.run(step)
        reduced = strategy.reduce("sum", mean, axis=None)
        topology = dist.tpu.initialize_tpu_system(dist.cluster_resolver.TPUClusterResolver(tpu=""))
        return {
            "kind": type(strategy).__name__,
            "replicas": strategy.num_replicas_in_sync,
            "logical": [len(own) for own in strategy.replica_devices],
            "mesh": topology.mesh_shape.tolist(),
            "reduced": float(reduced),
        }
"""


RAGGED = """
    import jax.numpy as jnp

    import drumline.distribute as dist


    def main(run):
        \"\"\"Means over rows of which the last batch has too few for all replicas.\"\"\"
        strategy, total, rows = run.strategy, 0.0, 0.0

        def step(x):
            weights = dist.row_weights()
            return dist.all_reduce("sum", (x * weights).sum()), dist.all_reduce("sum", weights.sum())

        for batch in strategy.distribute_dataset(dist.Dataset.from_tensor_slices(jnp.arange(20.0)).batch(16)):
            part, count = strategy.run(step, args=(batch,))
            total += float(strategy.local_results(part)[0])
            rows += float(strategy.local_results(count)[0])
        return {"replicas": strategy.num_replicas_in_sync, "mean": total / rows, "rows": rows}
"""


@pytest.fixture(scope="module")
def slices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A v3 host of 8 cores, two v4 hosts of 4 chips, and a host of 8 GPUs, on CPU devices."""
    asked = ("--simulate", "v3:2x2", "--simulate", "v4:2x2x2", "--simulate", "gpu:8")
    deployment = Deployment.start(tmp_path_factory.mktemp("slices") / "data", *asked, environment=QUICKER)
    try:
        deployment.wait_for_devices(24)
        yield deployment
    finally:
        deployment.stop()


def submit(
    client: Client, programs: Programs, source: str, *, strategy: TpuSpec, replicas: int, platform: Platform = "tpu"
) -> Run:
    path = programs.write("program", source)
    return client.submit(path, strategy=strategy, replicas=replicas, platform=platform)


def test_the_inventory_has_hosts_coordinates_and_labels(slices: Deployment) -> None:
    devices = slices.get("/devices", limit=200)["items"]
    assert {device["simulated"] for device in devices} == {True}
    by_host = {host: [device for device in devices if device["host_name"] == host] for host in _names(slices)}
    assert {host: len(there) for host, there in by_host.items()} == {
        "gpu-8-host-0": 8,
        "v3-2x2-host-0": 8,
        "v4-2x2x2-host-0": 4,
        "v4-2x2x2-host-1": 4,
    }
    second = by_host["v4-2x2x2-host-1"]
    assert {(device["platform"], device["kind"], device["core_on_chip"]) for device in second} == {("tpu", "TPU v4", 0)}
    assert sorted(device["coords"] for device in second) == [[0, 0, 1], [0, 1, 1], [1, 0, 1], [1, 1, 1]]
    assert all(device["coords"] is None for device in by_host["gpu-8-host-0"])


def test_a_program_that_builds_tpu_strategy_itself_runs_unchanged(slices: Deployment, programs: Programs) -> None:
    with connect(slices) as client:
        run = submit(client, programs, OWN_STRATEGY, strategy=TpuSpec(), replicas=8)
        assert run.wait(timeout=END_S).result == {"mesh": [2, 2, 1, 2], "total": 64.0}


def test_a_job_with_the_strategy_tpu_gets_a_box_and_shows_its_logical_devices(
    slices: Deployment, programs: Programs
) -> None:
    spec = TpuSpec(computation_shape=(2, 2, 1, 1))
    with connect(slices) as client:
        run = submit(client, programs, JOB_STRATEGY, strategy=spec, replicas=2)
        result = run.wait(timeout=END_S).result
        assert result == {"kind": "TPUStrategy", "replicas": 2, "logical": [4, 4], "mesh": [2, 2, 1, 2], "reduced": 4.0}
        placement = slices.get(f"/runs/{run.id}/placement")
    assert placement["confirmed"]
    assert placement["strategy"] == "TPUStrategy"
    by_id = {device["device"]: device for device in placement["devices"]}
    for replica in placement["replicas"]:
        own = [by_id[device] for device in replica["devices"]]
        assert [(device["replica"], device["logical"]) for device in own] == [
            (replica["replica"], logical) for logical in range(4)
        ]
        assert {tuple(device["coords"]) for device in own} == {(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0)}
        assert {device["core_on_chip"] for device in own} == {replica["replica"]}
    assert placement["variables"][0]["homes"]
    assert set(placement["variables"][0]["homes"]) == set(by_id)


def test_a_job_over_the_hosts_of_a_slice_computes_on_their_box(slices: Deployment, programs: Programs) -> None:
    """Two v4 hosts of 4 chips each: a replica of 2 x 2 chips on each, in one program."""
    spec = TpuSpec(computation_shape=(2, 2, 1, 1), topology="v4:2x2x2")
    with connect(slices) as client:
        run = submit(client, programs, JOB_STRATEGY, strategy=spec, replicas=2)
        result = run.wait(timeout=END_S).result
        assert result == {"kind": "TPUStrategy", "replicas": 2, "logical": [4, 4], "mesh": [2, 2, 2, 1], "reduced": 4.0}
        placement = slices.get(f"/runs/{run.id}/placement")
        links = list(client.links("v4:2x2x2"))
    by_replica: dict[int, set[str]] = {}
    for device in placement["devices"]:
        by_replica.setdefault(device["replica"], set()).add(device["host_name"])
    assert by_replica == {0: {"v4-2x2x2-host-0"}, 1: {"v4-2x2x2-host-1"}}
    hosts = {host["name"]: host for host in slices.get("/hosts")["items"]}
    assert hosts["v4-2x2x2-host-1"]["slice"] == {
        "name": "v4:2x2x2",
        "topology": "v4:2x2x2",
        "chips": [2, 2, 2],
        "wraps": [False, False, False],
    }
    assert hosts["gpu-8-host-0"]["slice"] is None
    between = [link for link in links if len(set(link.hosts)) == 2]
    assert (len(links), len(between)) == (12, 4)


def test_replicas_of_one_core_over_the_hosts_of_a_slice_share_their_data(
    slices: Deployment, programs: Programs
) -> None:
    """A last batch that does not divide is filled up, as over any processes."""
    with connect(slices) as client:
        run = submit(client, programs, RAGGED, strategy=TpuSpec(topology="v4:2x2x2"), replicas=8)
        result = run.wait(timeout=END_S).result
    assert result == {"replicas": 8, "mean": 9.5, "rows": 20.0}


def test_the_same_job_runs_on_devices_that_lie_on_no_slice(slices: Deployment, programs: Programs) -> None:
    spec = TpuSpec(computation_shape=(1, 1, 1, 2), topology="v3:2x2")
    with connect(slices) as client:
        run = submit(client, programs, OWN_STRATEGY, strategy=spec, replicas=4, platform="gpu")
        assert run.wait(timeout=END_S).result == {"mesh": [2, 2, 1, 2], "total": 64.0}


@pytest.mark.parametrize(
    ("spec", "replicas", "told"),
    [
        (TpuSpec(computation_shape=(3, 1, 1, 1)), 1, "no box"),
        (TpuSpec(computation_shape=(2, 2, 1, 1), topology="v4:2x2x1"), 2, "v4:2x2x1"),
        (TpuSpec(computation_shape=(2, 2, 1)), 1, "4 positive numbers"),
        (TpuSpec(topology="v9:2x2"), 1, "no TPU 'v9'"),
        (TpuSpec(computation_shape=(2, 2, 2, 1)), 1, "each replica lies on one host"),
        (TpuSpec(computation_shape=(1, 1, 2, 1)), 4, "each replica lies on one host"),
        (TpuSpec(), 9, "the largest slice has room for 8 replicas"),
    ],
)
def test_a_shape_that_no_host_has_is_refused_at_submit(
    slices: Deployment, programs: Programs, spec: TpuSpec, replicas: int, told: str
) -> None:
    with connect(slices) as client, pytest.raises(DrumlineError, match=told) as refused:
        submit(client, programs, JOB_STRATEGY, strategy=spec, replicas=replicas)
    assert "strategy" in str(refused.value) or told in str(refused.value)


def test_a_run_waits_for_a_box_although_enough_devices_are_free(slices: Deployment, programs: Programs) -> None:
    """One run has the left column of the v3 slice's chips: of the four cores that are free none form a row."""
    with connect(slices) as client:
        column = TpuSpec(computation_shape=(1, 2, 1, 2))
        first = submit(client, programs, ENDLESS, strategy=column, replicas=1)
        wait_until(
            lambda: slices.get(f"/runs/{first.id}")["state"] == "RUNNING",
            timeout_s=END_S,
            what="the first run computes",
        )
        try:
            row = TpuSpec(computation_shape=(2, 1, 1, 2))
            second = submit(client, programs, JOB_STRATEGY, strategy=row, replicas=1)
            why = slices.get(f"/runs/{second.id}")["why"]
            assert why["rule"] == "devices_busy"
            assert "side by side" in why["sentence"]
        finally:
            first.cancel(grace_s=0)
        result = second.wait(timeout=END_S).result
        assert isinstance(result, dict)
        assert result["logical"] == [4]


def _names(deployment: Deployment) -> list[str]:
    return [host["name"] for host in deployment.get("/hosts")["items"]]


def test_more_simulated_devices_than_a_machine_computes_on_are_refused(
    tmp_path_factory: pytest.TempPathFactory, programs: Programs
) -> None:
    deployment = Deployment.start(tmp_path_factory.mktemp("many") / "data", "--cpu-devices", "80", environment=QUICKER)
    try:
        deployment.wait_for_devices(80)
        with connect(deployment) as client, pytest.raises(TooManyReplicasError, match="at most 64") as refused:
            submit(client, programs, JOB_STRATEGY, strategy=TpuSpec(), replicas=65, platform="cpu")
        assert refused.value.code == "too_many_simulated"
        with connect(deployment) as client:
            plan = client.plan(programs.write("planned", JOB_STRATEGY), replicas=65, probe=False)
            assert plan is not None
    finally:
        deployment.stop()
