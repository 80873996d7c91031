"""What operators do with hosts and devices, over HTTP on a real server."""

import pytest

from drumline.contracts.base import new_id
from support.edge import EdgeServer

V1 = "/api/v1"


def test_operator_drains_undrains_and_releases(server: EdgeServer) -> None:
    worker = server.core.add_worker(devices=1)
    operator = server.client(server.token("operator"))

    drained = operator.post(f"{V1}/hosts/{worker.host_id}:drain")
    assert (drained.status_code, drained.json()["state"]) == (200, "draining")
    assert worker.beat().drain
    undrained = operator.post(f"{V1}/hosts/{worker.host_id}:undrain")
    assert (undrained.status_code, undrained.json()["state"]) == (200, "live")
    assert operator.post(f"{V1}/hosts/{worker.host_id}:release").json()["trouble"] is None
    device = operator.get(f"{V1}/devices").json()["items"][0]["id"]
    assert operator.post(f"{V1}/devices/{device}:release").json()["state"] == "FREE"


@pytest.mark.parametrize("role", ["viewer", "submitter"])
def test_nobody_less_than_an_operator_may(server: EdgeServer, role: str) -> None:
    worker = server.core.add_worker(devices=1)
    client = server.client(server.token(role))
    device = client.get(f"{V1}/devices").json()["items"][0]["id"]
    host = f"{V1}/hosts/{worker.host_id}"

    for path in (f"{host}:drain", f"{host}:undrain", f"{host}:release", f"{V1}/devices/{device}:release"):
        assert client.post(path).status_code == 403, path


def test_hosts_and_devices_that_are_not_there_are_not_found(server: EdgeServer) -> None:
    for path in (f"hosts/{new_id('hst')}:drain", f"hosts/{new_id('hst')}:release", f"devices/{new_id('dev')}:release"):
        answer = server.admin.post(f"{V1}/{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
