"""What a program keeps is copied where it runs, sent by its host whatever happens to line and agent, and read back."""

import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from drumline import Client, Run
from drumline.cli.recorded import artifacts
from drumline.contracts.reasons import EndReason
from drumline.errors import RunError
from drumline_server.telemetry.logs import list_gaps
from support.layer import Answer, Request, problem
from support.processes import wait_until
from support.worker_process import WorkerProcess, running_worker
from support.worker_server import WorkerServer

KEEPS = """
import os, pathlib, warnings

def main(run):
    pathlib.Path("table.csv").write_text("a,b\\n1,2\\n")
    export = pathlib.Path("export")
    (export / "weights").mkdir(parents=True)
    (export / "model.json").write_text("{}")
    (export / "weights" / "0.bin").write_bytes(bytes(range(256)) * 4096)
    (export / "run.sh").write_text("echo")
    (export / "run.sh").chmod(0o755)
    kept = [
        run.save_artifact("table.csv", kind="table", metadata={"rows": 1, "best": 0.5}),
        run.save_artifact(export, "model"),
    ]
    pathlib.Path("table.csv").write_text("changed")
    kept.append(run.save_artifact(pathlib.Path("table.csv"), "again.csv"))
    pathlib.Path("loop").mkdir()
    os.symlink("..", "loop/up")
    os.mkfifo("pipe")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        refused = [
            run.save_artifact("none"),
            run.save_artifact("table.csv", "../up"),
            run.save_artifact("table.csv", "a\\u202eb"),
            run.save_artifact("table.csv", kind="No Word"),
            run.save_artifact("table.csv", metadata={"a": [1]}),
            run.save_artifact("loop"),
            run.save_artifact("pipe"),
        ]
    return {"kept": kept, "refused": refused, "told": [f"{type(one.message).__name__}: {one.message}" for one in told]}
"""


def stored(server: WorkerServer, run_id: str) -> bool:
    with Client(server.url, server.admin_token) as client:
        return all(one.details.state != "ARRIVING" for one in client.get(run_id).artifacts())


def test_what_a_program_keeps_is_read_back_as_it_was_and_what_is_refused_ends_no_training(
    server: WorkerServer, worker: WorkerProcess, tmp_path: Path
) -> None:
    member = server.assign(KEEPS)
    assert server.wait_drained(member).reason == EndReason.COMPLETED
    wait_until(lambda: stored(server, member.run), timeout_s=30, what="all of it is there")
    with Client(server.url, server.admin_token) as client:
        run = client.get(member.run)
        _compare(run, tmp_path)
        _compare_saved(run, server, tmp_path / "cli")
    wait_until(lambda: not worker.run_directory(member).exists(), timeout_s=20, what="the host keeps nothing of it")
    told = _object(member.result)["told"]
    assert _object(member.result)["kept"] == [True] * 3
    assert _object(member.result)["refused"] == [False] * 7
    assert all(one.startswith("ArtifactWarning: run.save_artifact keeps nothing: ") for one in told)
    for part, one in zip(
        ("No such file", "holds '/'", "turns its direction", "kind", "metadata", "up", "pipe"), told, strict=True
    ):
        assert part in one
    project = server.core.project_id
    gaps = server.core.read(lambda session: list_gaps(session, project, member.run, None, cursor=None, limit=9)).items
    assert ({gap.what for gap in gaps}, sum(gap.count or 0 for gap in gaps)) == ({"artifact"}, 7)


def _object(value: Any) -> dict[str, Any]:  # Any: JSON
    assert isinstance(value, dict)
    return value


def _compare(run: Run, directory: Path) -> None:
    again, model, table = run.artifacts()
    assert (again.name, again.details.size_bytes, again.is_stored) == ("again.csv", 7, True)
    assert (table.name, table.details.kind, table.metadata) == ("table.csv", "table", {"rows": 1, "best": 0.5})
    assert table.save(directory / "t").read_text() == "a,b\n1,2\n", "as it was when it was kept"
    assert (model.details.is_directory, model.details.files) == (True, 3)
    saved = model.save(directory / "model")
    assert sorted(str(each.relative_to(saved)) for each in saved.rglob("*") if each.is_file()) == [
        "model.json",
        "run.sh",
        "weights/0.bin",
    ]
    assert (saved / "weights" / "0.bin").read_bytes() == bytes(range(256)) * 4096
    assert ((saved / "run.sh").stat().st_mode & 0o111) != 0
    with pytest.raises(FileExistsError, match="holds something already"):
        model.save(saved)


def _compare_saved(run: Run, server: WorkerServer, directory: Path) -> None:
    environment = {"DRUMLINE_TOKEN": server.admin_token}
    done = CliRunner().invoke(artifacts, [run.id, "--url", server.url, "--save", str(directory)], env=environment)
    assert done.exit_code == 0, done.output
    heading, first, *_ = done.stdout.splitlines()
    assert heading.split() == ["NAME", "KIND", "SIZE", "FILES", "RANK", "HOST", "STATE", "SHA-256"]
    assert first.split()[:7] == ["again.csv", "-", "7", "B", "-", "0", "test-host"]
    assert sorted(each.name for each in directory.iterdir()) == ["again.csv", "model", "table.csv"]
    none = CliRunner().invoke(artifacts, [run.id, "--name", "x", "--url", server.url], env=environment)
    assert "the run keeps nothing called 'x'; run.save_artifact keeps" in none.stderr


BIG = """
import pathlib

def main(run, *, size: int):
    pathlib.Path("big.bin").write_bytes(bytes(size))
    return run.save_artifact("big.bin")
"""
SIZE = 20 * 2**20


def received(server: WorkerServer, run: str) -> list[tuple[str, int]]:
    with Client(server.url, server.admin_token) as client:
        return [(str(one.details.state), one.details.received_bytes) for one in client.get(run).artifacts()]


def test_a_line_that_breaks_and_an_agent_that_is_killed_send_only_what_is_missing_after_the_runs_end(
    own_server: WorkerServer, own_worker: WorkerProcess, tmp_path: Path
) -> None:
    pieces: list[str] = []

    def refuse(request: Request) -> Answer | None:
        """After the first piece nothing is taken."""
        pieces.append(request.path)
        return problem(503, "unavailable", "busy") if len(pieces) > 1 else None

    path = "/worker/members/*/artifacts/*"
    own_server.layer.decide("PATCH", path, refuse)
    member = own_server.assign(BIG, parameters={"size": SIZE})
    assert own_server.wait_drained(member).reason == EndReason.COMPLETED
    own_server.wait(lambda: len(pieces) > 2, "further pieces are refused")
    assert received(own_server, member.run) == [("ARRIVING", 8 * 2**20)]

    own_worker.kill()
    own_server.layer.decide("PATCH", path, None)
    with running_worker(own_server, own_worker.data_dir) as again:
        has_come = [("STORED", SIZE)]
        wait_until(
            lambda: received(own_server, member.run) == has_come, timeout_s=60, what="the next agent sent the rest"
        )
        wait_until(lambda: not again.run_directory(member).exists(), timeout_s=20, what="nothing is left of it")
    with Client(own_server.url, own_server.admin_token) as client:
        (one,) = client.get(member.run).artifacts()
        assert one.save(tmp_path / "big").read_bytes() == bytes(SIZE)


def test_what_the_program_takes_away_or_changes_is_lost_and_says_so(
    own_server: WorkerServer, own_worker: WorkerProcess, tmp_path: Path
) -> None:
    source = """
import os, pathlib

def main(run):
    for name in ("gone", "changed", "linked"):
        pathlib.Path(name).write_text(name)
        run.save_artifact(name)
    kept = pathlib.Path("../artifacts")
    for file in kept.iterdir():
        said = file.read_text()
        if said == "changed":
            file.write_text("CHANGED")
        else:
            file.unlink()
        if said == "linked":
            os.symlink(os.environ["HOME"] + "/../order.json", file)
"""
    held = own_server.refuse_events
    own_server.refuse_events = lambda _batch: problem(503, "unavailable", "busy")
    member = own_server.assign(source)
    own_server.wait(lambda: member.end is not None, "it ended before anything was told")
    own_server.refuse_events = held
    lost = [("LOST", 7), ("LOST", 0), ("LOST", 0)]
    wait_until(lambda: sorted(received(own_server, member.run)) == sorted(lost), timeout_s=60, what="it is lost")
    with Client(own_server.url, own_server.admin_token) as client:
        reasons = {one.name: one.details.reason or "" for one in client.get(member.run).artifacts()}
        with pytest.raises(RunError, match="can't be saved: Its host no longer has it"):
            next(one for one in client.get(member.run).artifacts() if one.name == "gone").save(tmp_path)
    assert (reasons["gone"], reasons["linked"]) == ("Its host no longer has it.",) * 2
    assert reasons["changed"].startswith("What its host sent is sha256:")


def test_a_directory_has_the_same_digest_whenever_it_is_packed(tmp_path: Path) -> None:
    from drumline.local.artifacts import copy_source, find_source

    digests = []
    for place in ("one", "two"):
        directory = tmp_path / place
        for name in ("b", "a/c") if place == "one" else ("a/c", "b"):
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(name)
        with (tmp_path / f"{place}.zip").open("wb") as file:
            saved = copy_source(find_source(directory, "d", None, None, most_bytes=10**6), file, most_bytes=10**6)
        digests.append(saved.sha256)
        assert zipfile.ZipFile(tmp_path / f"{place}.zip").namelist() == ["a/c", "b"]
    assert digests[0] == digests[1]
