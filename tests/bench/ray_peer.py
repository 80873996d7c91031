"""The other side of the comparison: Ray Jobs with their own REST server. Runs in .venv-peers, imports nothing of ours.

Reads how many no-op jobs to run at once from each line of stdin, answers with the seconds until all have SUCCEEDED.
"""

import json
import shutil
import sys
import tempfile
import time

import ray
from ray.job_submission import JobStatus, JobSubmissionClient

POLL_S = 0.02
CPUS = 8


def main() -> None:
    """Serves until its input ends."""
    directory = tempfile.mkdtemp(prefix="ray-peer-")
    try:
        context = ray.init(
            num_cpus=CPUS, include_dashboard=True, dashboard_host="127.0.0.1", _temp_dir=directory, log_to_driver=False
        )
        client = JobSubmissionClient(f"http://{context.dashboard_url}")
        _say({"version": ray.__version__})
        for line in sys.stdin:
            _say({"seconds": _run(client, int(line))})
    finally:
        ray.shutdown()
        shutil.rmtree(directory, ignore_errors=True)


def _run(client: JobSubmissionClient, count: int) -> float:
    began = time.perf_counter()
    waiting = [client.submit_job(entrypoint="true") for _ in range(count)]
    while waiting:
        states = {job: client.get_job_status(job) for job in waiting}
        failed = [job for job, state in states.items() if state in (JobStatus.FAILED, JobStatus.STOPPED)]
        if failed:
            raise SystemExit(f"{failed} did not succeed")
        waiting = [job for job, state in states.items() if state != JobStatus.SUCCEEDED]
        if waiting:
            time.sleep(POLL_S)
    return time.perf_counter() - began


def _say(answer: dict[str, object]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
