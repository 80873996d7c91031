"""The other side of the comparison: MLflow's own tracking server. Runs in .venv-mlflow, imports nothing of ours.

First line of stdin: `{"database": URL of SQLAlchemy, "directory": where it may write, "log": file of its output}`; it
answers with its version and the server's pid once that answers. Each further line asks for `{"names", "points", "runs",
"singly"}`: so many points of so many names, by `log_batch` from that many runs at once, then `singly` values by
`log_metric`, then one name read whole.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mlflow
from mlflow.entities import Metric
from mlflow.tracking import MlflowClient

AT_ONCE = 1000
"""The most that a call of `log_batch` takes."""
START_S = 900
"""It imports all of itself in several processes, which takes a busy machine minutes: else they are killed after 5 s."""
READ_NAME = "m/0"


def main() -> None:
    """Serves until its input ends."""
    asked = json.loads(sys.stdin.readline())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with Path(asked["log"]).open("ab") as log:
        server = subprocess.Popen(
            [
                sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port),
                "--backend-store-uri", asked["database"], "--artifacts-destination", asked["directory"],
                "--uvicorn-opts", f"--timeout-worker-healthcheck {START_S}",
            ],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=asked["directory"],
            env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},  # its job runners outlive it
        )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for(server, f"{url}/health")
        client = MlflowClient(tracking_uri=url)
        _say({"version": mlflow.__version__, "pid": server.pid})
        for number, line in enumerate(sys.stdin):
            _say(_measure(client, client.create_experiment(f"bench {number}"), json.loads(line)))
    finally:
        server.terminate()
        server.wait()


def _measure(client: MlflowClient, experiment: str, asked: dict[str, int]) -> dict[str, float]:
    runs = [client.create_run(experiment).info.run_id for _ in range(asked["runs"])]
    each = max(1, asked["points"] // asked["runs"])
    began = time.perf_counter()
    with ThreadPoolExecutor(len(runs)) as pool:
        for done in [pool.submit(_log, client, run_id, asked["names"], each) for run_id in runs]:
            done.result()
    batch_s = time.perf_counter() - began
    began = time.perf_counter()
    for step in range(asked["singly"]):
        client.log_metric(runs[0], "single", step / 3, step=step)
    singly_s = time.perf_counter() - began
    began = time.perf_counter()
    read = len(client.get_metric_history(runs[0], READ_NAME))
    read_s = time.perf_counter() - began
    if read != each:
        raise SystemExit(f"{read} points of {each} came back")
    logged = each * asked["names"] * asked["runs"]
    singly = {"log_metric_per_s": asked["singly"] / singly_s} if asked["singly"] else {}
    return {"logged": logged, "log_batch_per_s": logged / batch_s, "read": read, "read_s": read_s, **singly}


def _log(client: MlflowClient, run_id: str, names: int, points: int) -> None:
    batch: list[Metric] = []
    for step in range(points):
        for name in range(names):
            batch.append(Metric(f"m/{name}", time.time(), int(time.time() * 1000), step))
            if len(batch) == AT_ONCE:
                client.log_batch(run_id, metrics=batch)
                batch = []
    if batch:
        client.log_batch(run_id, metrics=batch)


def _wait_for(server: "subprocess.Popen[bytes]", url: str) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f"MLflow's server does not answer; status {server.poll()}")


def _say(answer: Mapping[str, object]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
