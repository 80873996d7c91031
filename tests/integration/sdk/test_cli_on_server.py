"""Jobs, versions, batches and lists from the command line and the SDK, against a real server."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from drumline import Client
from drumline.contracts.plans import PlanReport
from drumline.contracts.worker_api import DeviceReport
from drumline.errors import DoesNotFitError, InvalidRequestError
from drumline.slices import simulated_hosts
from drumline_server.lifecycle import probes
from drumline_server.storage.models import Host, Plan
from support.command_line import Cli
from support.core import Worker
from support.edge import EdgeServer, edge_server

SOURCE = "def main(run, *, epochs: int = 20, layers: list[int] = [8]):\n    return {}\n"


@pytest.fixture
def edge(sqlite_url: str, tmp_path: Path) -> Iterator[EdgeServer]:
    with edge_server(sqlite_url, tmp_path / "server") as running:
        yield running


@pytest.fixture(autouse=True)
def worker(edge: EdgeServer) -> Worker:
    return edge.core.add_worker()


@pytest.fixture
def server(edge: EdgeServer) -> EdgeServer:
    """What the command line of these tests talks to."""
    return edge


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "digits.py"
    path.write_text(SOURCE)
    return path


def test_jobs_versions_and_diff_show_what_was_submitted(cli: Cli, program: Path) -> None:
    cli("submit", str(program), "--detach")
    program.write_text(SOURCE.replace("20", "30"))
    cli("submit", str(program), "--detach", "--strategy-option", "executor=pmap")

    assert cli("jobs") == 0
    assert [line.split()[:4] for line in cli.out.splitlines()] == [
        ["JOB", "CURRENT", "VERSIONS", "RUNS"],
        ["digits", "v2", "2", "2"],
    ]
    assert cli("jobs", "versions", "digits") == 0
    assert cli.out.splitlines()[1].startswith("v2 *")
    assert "mirrored executor=pmap" in cli.out
    assert cli("jobs", "diff", "digits") == 0
    assert 'strategy.executor: "auto" -> "pmap"' in cli.out
    assert "-def main(run, *, epochs: int = 20" in cli.out
    assert cli("jobs", "diff", "digits", "1", "1", "--json") == 0
    assert json.loads(cli.out)["files"] == []


def test_rollback_decides_what_running_a_job_by_name_runs(cli: Cli, program: Path, client: Client) -> None:
    client.submit(program)
    program.write_text(SOURCE.replace("20", "30"))
    client.submit(program)

    assert cli("jobs", "rollback", "digits", "1") == 0
    assert cli.out == "digits  current version v1\n"
    assert cli("jobs", "run", "digits", "-p", "epochs=3", "--detach", "--json") == 0
    run = json.loads(cli.out)
    assert (run["version"], run["parameters"]) == (1, {"epochs": 3})
    assert cli("jobs", "run", "digits", "--version", "2", "--detach", "--json") == 0
    assert json.loads(cli.out)["version"] == 2
    assert [change.cause for change in client.job("digits").changes()] == ["rollback", "submit", "submit"]


@pytest.mark.parametrize("command", ["submit", "jobs run"])
def test_spread_is_chosen_by_name_where_runs_are_made(cli: Cli, program: Path, client: Client, command: str) -> None:
    client.submit(program)
    made = [*command.split(), str(program) if command == "submit" else "digits", "--detach", "--json"]

    assert cli(*made) == 0
    assert json.loads(cli.out)["resources"]["spread"] == "pack"
    assert cli(*made, "--spread", "balance") == 0
    assert json.loads(cli.out)["resources"]["spread"] == "balance"
    assert cli(*made, "--spread", "one-host") == 2
    assert "--spread 'one-host': Input should be 'pack', 'balance' or 'one_host'; did you mean 'one_host'?" in cli.err


@pytest.mark.parametrize("command", ["submit", "jobs run"])
def test_retries_are_chosen_where_runs_are_made(cli: Cli, program: Path, client: Client, command: str) -> None:
    client.submit(program)
    made = [*command.split(), str(program) if command == "submit" else "digits", "--detach", "--json"]

    assert cli(*made) == 0
    assert json.loads(cli.out)["retries"] == {"user": 0, "infrastructure": 3}
    assert cli(*made, "--infrastructure-retries", "0") == 0
    assert json.loads(cli.out)["retries"] == {"user": 0, "infrastructure": 0}
    assert cli(*made, "--retries", "2", "--infrastructure-retries", "7") == 0
    assert json.loads(cli.out)["retries"] == {"user": 2, "infrastructure": 7}
    assert cli(*made, "--infrastructure-retries", "-1") == 2
    assert "--infrastructure-retries -1: Input should be greater than or equal to 0" in cli.err


def test_what_is_recorded_is_chosen_by_name_and_kept_by_the_version(cli: Cli, program: Path, client: Client) -> None:
    assert cli("submit", str(program), "--detach") == 0
    assert cli("submit", str(program), "--detach", "--record", "reductions_every=1") == 0

    job = client.job("digits")
    assert [job.version(number).record.reductions_every for number in (1, 2)] == [10, 1]
    assert cli("jobs", "run", "digits", "--detach", "--json") == 0
    assert json.loads(cli.out)["version"] == 2
    assert cli("submit", str(program), "--record", "reduction_every=1") == 2
    assert "record has no setting 'reduction_every'; did you mean 'reductions_every'?" in cli.err


def test_unknown_job_and_version_are_usage_errors_in_words(cli: Cli, program: Path, client: Client) -> None:
    assert cli("jobs", "versions", "nothing") == 2
    assert "There is no job nothing" in cli.err
    client.submit(program)
    assert cli("jobs", "rollback", "digits", "9") == 2
    assert "It has versions 1 to 1." in cli.err


def test_rerun_repeats_an_old_run(cli: Cli, program: Path, client: Client) -> None:
    old = client.submit(program, parameters={"epochs": 3}, labels={"team": "a"}, replicas=2)

    assert cli("rerun", old.id[-8:], "--detach", "--json") == 0

    run = json.loads(cli.out)
    assert run["id"] != old.id
    assert (run["rerun_of"], run["parameters"], run["replicas"]) == (old.id, {"epochs": 3}, 2)


def test_sweep_makes_a_batch_whose_table_is_shown_and_exported(
    cli: Cli, program: Path, client: Client, edge: EdgeServer
) -> None:
    arguments = ("--sweep", "epochs=5,10", "--sweep", "layers=[64],[64, 32]", "--batch-name", "depth", "-n", "2")

    assert cli("sweep", str(program), *arguments) == 0
    batch_id, count = cli.out.split()[:2]
    assert count == "4"
    batch = client.batch(batch_id)
    assert [row.parameters for row in batch.outcomes()][1] == {"epochs": 5, "layers": [64, 32]}
    frame = batch.to_pandas()
    assert (frame["parameters.epochs"][1], frame["parameters.layers"][1]) == (5, "[64, 32]")
    assert [run.replicas for run in batch.runs()] == [2, 2, 2, 2]
    assert cli("batches") == 0
    owner = batch.details.owner.name
    assert re.split(r" {2,}", cli.out.splitlines()[1])[:5] == [batch_id, "depth", owner, "digits", "4"]
    assert cli("batches", "show", batch_id, "--sort", "-parameters.epochs", "--limit", "2") == 0
    assert [line.split()[2] for line in cli.out.splitlines()] == ["epochs", "10", "10"]
    assert cli("batches", "show", batch_id, "--csv") == 0
    assert cli.out.splitlines()[0] == "run,index,state,epochs,layers,duration_s"
    assert cli("batches", "cancel", batch_id) == 0
    edge.core.cancel_batches()  # on a busy machine the first part takes less than all, and the loops do the rest
    assert cli("batches", "cancel", batch_id) == 0
    assert cli.out == f"{batch_id}  4 cancelled\n"


def test_a_table_and_a_frame_have_what_each_run_took_and_say_what_was_its_default(
    cli: Cli, client: Client, edge: EdgeServer, tmp_path: Path
) -> None:
    program = tmp_path / "rates.py"
    program.write_text("def main(run, *, lr: float = 0.2, steps: int = 10): pass")
    batch = client.submit_batch([client.prepare(program, parameters={name: 3}) for name in ("lr", "steps")])

    assert cli("batches", "show", batch.id) == 0
    rows = [re.split(r" {2,}", line)[2:4] for line in cli.out.splitlines()]
    assert rows == [["lr", "steps"], ["3.0", "10 (default)"], ["0.2 (default)", "3"]]
    frame = batch.to_pandas()
    assert (list(frame["parameters.lr"]), list(frame["parameters.steps"])) == ([3.0, 0.2], [10, 3])
    first, second = (client.get(row.run) for row in batch.outcomes())
    assert (first.parameters, first.defaults) == ({"lr": 3.0}, {"steps": 10})
    assert (second.parameters, second.defaults) == ({"steps": 3}, {"lr": 0.2})


def test_a_sweep_that_cannot_save_where_it_goes_is_told_so_once(cli: Cli, program: Path, edge: EdgeServer) -> None:
    edge.core.add_worker("beta")

    assert cli("sweep", str(program), "--sweep", "epochs=5,10", "-n", "12") == 0
    assert cli.err.count("warning: No host alone has room for 12 replicas") == 1


def test_random_sweep_and_points_come_from_the_command_line(
    cli: Cli, program: Path, client: Client, tmp_path: Path
) -> None:
    (tmp_path / "points.json").write_text('[{"epochs": 3}, {"epochs": 4}]')

    code = cli("sweep", str(program), "--sweep", "epochs=1..50", "--random", "3", "--seed", "1", "--json")
    assert code == 0, cli.err
    drawn = client.batch(json.loads(cli.out)["id"])
    assert cli("sweep", str(program), "--points", str(tmp_path / "points.json"), "--json") == 0
    listed = client.batch(json.loads(cli.out)["id"])

    values = [row.parameters["epochs"] for row in drawn.outcomes()]
    assert all(isinstance(value, int) and 1 <= value <= 50 for value in values)
    assert len(set(map(str, values))) == 3
    assert [row.parameters for row in listed.outcomes()] == [{"epochs": 3, "layers": [8]}, {"epochs": 4, "layers": [8]}]
    assert [row.given for row in listed.outcomes()] == [("epochs",), ("epochs",)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name what to vary"),
        (("--sweep", "epochs"), "not of the form NAME=VALUE"),
        (("--sweep", "epochs=1", "--sweep", "epochs=2"), "stands there twice"),
        (("--sweep", "epochs=1..5"), "say with --random N"),
        (("--sweep", "epoch=1,2"), "did you mean 'epochs'?"),
        (("--sweep", "epochs=1,x"), "takes a whole number"),
        (("--sweep", "epochs=3", "-p", "epochs=4"), "fixed to 4"),
        (("--sweep", "epochs=5..1", "--random", "2"), "low must be less than high"),
        (("--sweep", "epochs=1,2", "--platform", "gpus"), "did you mean 'gpu'?"),
        (("--sweep", "epochs=1,2", "-s", "executor=spdm"), "did you mean 'spmd'?"),
    ],
)
def test_sweep_that_makes_no_sense_is_a_usage_error_in_words(
    cli: Cli, program: Path, arguments: tuple[str, ...], said: str
) -> None:
    assert cli("sweep", str(program), *arguments) == 2
    assert said in cli.err


def test_prepared_runs_are_submitted_together_or_not_at_all(client: Client, program: Path) -> None:
    requests = [client.prepare(program, parameters={"epochs": number}) for number in (1, 2)]

    batch = client.submit_batch(requests, name="pair")

    assert (batch.details.name, batch.details.size, batch.ended) == ("pair", 2, False)
    too_large = client.prepare(program, replicas=64)
    with pytest.raises(InvalidRequestError) as caught:
        client.submit_batch([*requests, too_large])
    assert [error.field for error in caught.value.problem.errors] == ["runs.2.resources.replicas"]
    assert len(list(client.list())) == 2


def test_ps_filters_as_the_runs_page_does(cli: Cli, program: Path, client: Client) -> None:
    first = client.submit(program, name="mnist", labels={"team": "a"})
    second = client.submit(program, name="digits", labels={"team": "b"})

    def listed(*arguments: str) -> list[str]:
        assert cli("ps", "--json", *arguments) == 0
        return [run["id"] for run in json.loads(cli.out)]

    assert listed() == [second.id, first.id]
    assert listed("--sort", "created") == [first.id, second.id]
    assert listed("--label", "team=a") == [first.id]
    assert listed("mni") == [first.id]
    assert listed("--state", "queued", "--job", "digits", "--version", "1") == [second.id]
    assert listed("--state", "failed") == []
    assert cli("ps", "--state", "quued") == 2
    assert "did you mean 'queued'?" in cli.err
    assert cli("ps", "--version", "1") == 2


def test_why_tells_the_rule_the_evidence_the_position_and_what_would_let_it_start(
    edge: EdgeServer, cli: Cli, program: Path, client: Client
) -> None:
    ahead = client.submit(program, replicas=6)
    edge.core.schedule()
    waiting = client.submit(program, replicas=4)

    assert cli("why", f"r-{waiting.id[-5:].lower()}") == 0
    first, sentence, *below = cli.out.splitlines()
    assert first == f"{waiting.id}  QUEUED"
    assert sentence.startswith("Needs 4 replicas; alpha has 2 devices free. Position 1 in the queue. It starts when")
    assert below == [
        "  Submitted with 2 replicas it would start now.",
        f"  Starts when {ahead.id} ends.",
        "  rule devices_busy: wanted 4, free 2, host alpha",
    ]
    assert cli("why", waiting.id, "--json") == 0
    assert json.loads(cli.out) == edge.admin.get(f"/api/v1/runs/{waiting.id}").json()["why"]


def test_plan_of_a_run_that_would_wait_tells_as_much_as_why(
    edge: EdgeServer, cli: Cli, program: Path, client: Client
) -> None:
    ahead = client.submit(program, replicas=6)
    edge.core.schedule()

    assert cli("plan", str(program), "-n", "4", "--no-probe") == 0

    assert "it would wait: Needs 4 replicas; alpha has 2 devices free. Position 1 in the queue. It starts" in cli.out
    assert "\n  Submitted with 2 replicas it would start now.\n" in cli.out
    assert f"\n  Starts when {ahead.id} ends.\n" in cli.out


def test_checkpoints_take_the_end_of_a_runs_id(
    edge: EdgeServer, worker: Worker, cli: Cli, program: Path, client: Client
) -> None:
    run = client.submit(program)
    edge.core.schedule()
    member = worker.take().start()
    member.send(member.event("checkpoint", step=7, path="f1/step_7", size_bytes=10, manifest="sha256:7"))

    assert cli("checkpoints", f"r-{run.id[-5:].lower()}", "--json") == 0

    assert [checkpoint["step"] for checkpoint in json.loads(cli.out)] == [7]


MISFIT: dict[str, Any] = {
    "slice": "v5e:2x2",
    "kind": "TPU v5 lite",
    "devices": 4,
    "hosts": 1,
    "compiler": "libtpu 0.0.52",
    "available_bytes": 2**34,
    "programs": (
        {
            "first_call": 0,
            "rows_per_replica": None,
            "fits": False,
            "gross": True,
            "argument_bytes": 2**35,
            "needed_bytes": 2**35,
            "memory": None,
            "largest": (),
            "exchanges": (),
            "exchange_count": 0,
            "flops": None,
            "bytes_accessed": None,
            "optimal_s": None,
            "message": "",
            "seconds": 0.1,
        },
    ),
    "fits": False,
    "stopped": None,
}


@pytest.fixture
def misfit(edge: EdgeServer, client: Client, program: Path) -> str:
    """Of the program, by which it does not fit the one slice that the fleet has; somebody made it."""
    worker = edge.core.add_worker("v5e-2x2", 4, platform="tpu")
    (host,) = simulated_hosts("v5e:2x2")
    devices = [
        DeviceReport(platform="tpu", index=index, kind=host.kind, coords=place[:3], core_on_chip=0, simulated=True)
        for index, place in enumerate(host.places)
        if place is not None
    ]
    worker.register(devices=tuple(devices))
    made = client.plan(program, on="v5e:2x2", wait=False)
    found = {
        "strategy": "MirroredStrategy",
        "executor": "spmd",
        "steps": 4,
        "ended": True,
        **dict.fromkeys(("variables", "collectives", "batches", "inputs", "memory", "warnings"), ()),
        "seconds": 1.0,
        "chips": MISFIT,
    }

    def answer(session: Session) -> None:
        host_id = session.get_one(Plan, made.id).host_id
        assert host_id is not None
        incarnation = session.get_one(Host, host_id).incarnation_id
        report = PlanReport.model_validate({"incarnation": incarnation, "program": found})
        probes.record_plan_report(session, host_id, made.id, report, 0, now=edge.core.clock.now())

    edge.core.write(answer)
    return made.id


@pytest.mark.parametrize("command", ["submit", "jobs run", "sweep"])
def test_a_plan_that_somebody_made_refuses_each_way_to_run_unless_anyway(
    cli: Cli, program: Path, client: Client, misfit: str, command: str
) -> None:
    client.submit(program)  # one replica: no plan speaks of that
    made = [*command.split(), "digits" if command == "jobs run" else str(program), "--replicas", "4"]
    made += ["--detach"] if command != "sweep" else ["--sweep", "epochs=20"]
    made += ["--platform", "tpu"] if command != "jobs run" else []

    if command == "jobs run":  # has no --platform, and the fleet has CPU devices, too
        edge_only = client.job("digits").run
        with pytest.raises(DoesNotFitError, match="does not fit v5e:2x2"):
            edge_only(replicas=4, platform="tpu")
        assert edge_only(replicas=4, platform="tpu", anyway=True).id
        assert cli(*made, "--anyway") == 0
        return
    assert cli(*made) == 2
    assert misfit in cli.err
    assert "needs 32.00 GiB on each device, and a program may use 16.00 GiB" in cli.err
    assert "--anyway" in cli.err
    assert cli(*made, "--anyway") == 0


def test_a_dry_run_takes_no_anyway(cli: Cli, program: Path) -> None:
    assert cli("submit", str(program), "--dry-run", "--anyway") == 2
    assert "--dry-run submits nothing" in cli.err
