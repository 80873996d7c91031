"""What a worker says of the place that it lives in: the same when it comes back, another in a copy of its directory."""

import os
import subprocess
from pathlib import Path

from support.processes import living, wait_until
from support.worker_process import WorkerProcess
from support.worker_server import WorkerServer

ENDLESS = """
import time

def main(run):
    print("up")
    while True:
        time.sleep(0.1)
"""


def test_place_outlives_the_agent_and_a_copy_of_the_directory_tells_another_and_of_no_member(
    own_server: WorkerServer, own_worker: WorkerProcess, tmp_path: Path
) -> None:
    member = own_server.assign(ENDLESS)
    own_server.wait_printed(member, "up")
    program = own_worker.program_of(member)
    own_worker.kill()
    parent_pipe = own_worker.parent_pipe
    own_worker.start()
    wait_until(lambda: own_worker.said.count("registered as") == 2, timeout_s=60, what="it is registered again")
    first, again = own_server.registrations[0], own_server.registrations[-1]
    assert first.place == again.place != ""
    assert [found.member for found in again.members] == [member.id]

    twin = WorkerProcess(own_server, tmp_path / "copy")
    subprocess.run(["cp", "-a", own_worker.data_dir, twin.data_dir], check=False)  # some of it vanishes meanwhile
    assert (twin.data_dir / "runs" / member.id / "order.json").exists()
    twin.start()
    try:
        wait_until(lambda: "registered as" in twin.said, timeout_s=60, what="the twin is registered")
        # The first one may register once more after it.
        copied = next(found for found in own_server.registrations if found.place != first.place)
        assert copied.place != ""
        assert copied.boot_id == first.boot_id
        assert copied.members == ()
        assert not (twin.data_dir / "runs" / member.id).exists()
        assert own_worker.process is not None
        assert own_worker.process.wait(30) == 1, "it makes way"
        assert living(program) == []
    finally:
        twin.stop()
        os.close(parent_pipe)
