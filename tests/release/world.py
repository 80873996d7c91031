"""A small world in which everything happens once that a server keeps: told by real processes, recorded on the way."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from chaos.harness import PATIENCE_S, REGISTERED, TIME_SCALE, in_force
from chaos.programs import write_program
from drumline import Client, Run
from drumline.contracts.spec import CheckpointSpec, MirroredSpec, RecordSpec, Retries
from drumline.contracts.states import RunState
from release.programs import GANG, MEASURING, STEPPING
from release.reads import read_all
from release.recorder import Recorder
from support.api_process import DRUMLINE, ApiProcess
from support.broker import Broker
from support.hosts import ExtraHost
from support.processes import wait_until

CONVERSATION = "conversation"
"""What one client and one host said until all was done: a later server can be told it again from the beginning."""
MORE = "more"
READS = "reads"
"""What a client read in the end: a later server on the same data answers it alike."""
TAKEOVER_S = 10.0
_ENDED = (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED)


@dataclass(eq=False)
class World:
    """A deployment in `directory` whose every line is recorded."""

    directory: Path
    server: ApiProcess
    recorder: Recorder
    resources: ExitStack
    hosts: dict[str, ExtraHost] = field(default_factory=dict)
    outcomes: dict[str, Any] = field(default_factory=dict)
    """Of what was said in the conversation: by run, its state and result."""

    def __post_init__(self) -> None:
        line = self.resources.enter_context(self.recorder.line(self.server.url, "client"))
        self.url = line
        self.client = self.resources.enter_context(Client(line, self.server.token))
        headers = {"Authorization": f"Bearer {self.server.token}"}
        self.http = self.resources.enter_context(httpx2.Client(base_url=f"{line}/api/v1", headers=headers, timeout=60))
        self.programs = {name: write_program(self.directory, source, name) for name, source in _PROGRAMS.items()}

    def add_host(self, name: str, cpu_devices: int = 2) -> None:
        """All hosts share one volume for checkpoints."""
        line = self.resources.enter_context(self.recorder.line(self.server.url, name))
        options = ("--checkpoint-dir", str(self.directory / "checkpoints"))
        host = self.hosts[name] = ExtraHost(self.directory / name, line, cpu_devices, options)
        host.enrol(self.http)
        host.start()
        self.wait_for(name, cpu_devices)

    def wait_for(self, name: str, devices: int) -> None:
        """Until the host offers so many free devices."""

        def offers() -> bool:
            return sum(host.free_devices for host in self.client.hosts() if host.name == name) == devices

        wait_until(offers, timeout_s=PATIENCE_S, what=f"{name} offers its devices")

    def submit(self, program: str, **options: Any) -> Run:
        """With a checkpoint at every fourth step."""
        options = {"checkpoint": CheckpointSpec(every_steps=4), "record": RecordSpec(reductions_every=1), **options}
        return self.client.submit(self.programs[program], **options)

    def finish(self, run: Run, state: RunState) -> Run:
        """Waits for the end of a run. Raises AssertionError unless that is the state."""
        run.wait(timeout=PATIENCE_S)
        assert run.state is state, (run.state, run.details.why, self.server.said[-2_000:])
        return run

    def wait_until_stepping(self, run: Run, steps: int = 6) -> None:
        """Until it has reported so many steps."""
        wait_until(
            lambda: (run.refresh().progress.step or 0) >= steps,
            timeout_s=PATIENCE_S,
            what=f"{run.id} made {steps} steps",
        )

    def command(self, *words: str) -> None:
        """A command line as users type it."""
        given = {"DRUMLINE_URL": self.url, "DRUMLINE_TOKEN": self.server.token, "NO_COLOR": "1"}
        done = subprocess.run(
            [str(DRUMLINE), *words],
            env={**os.environ, **given},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)

    def stop(self) -> None:
        """Hosts and server; what they kept stays where it is."""
        for host in self.hosts.values():
            host.stop()
        self.resources.close()
        self.server.stop()


_PROGRAMS = {"measuring": MEASURING, "stepping": STEPPING, "gang": GANG}


@contextmanager
def open_world(directory: Path, database_url: str) -> Iterator[World]:
    """A server on that database, SQLite in its data directory where it is empty, with a Redis and no host."""
    broker = Broker(directory / "redis.sock")
    broker.start()
    settings: Mapping[str, str] = {
        "DRUMLINE_BROKER_URL": broker.url,
        "DRUMLINE_TIME_SCALE": str(TIME_SCALE),
        **in_force("TAKEOVER_S", TAKEOVER_S),
    }
    server = ApiProcess(directory / "server", database_url, settings, program=(str(DRUMLINE),))
    server.directory.mkdir()
    server.start()
    world = World(directory, server, Recorder(), ExitStack())
    try:
        yield world
    except BaseException:
        print(server.said[-4_000:], *(host.said[-4_000:] for host in world.hosts.values()), sep="\n", file=sys.stderr)
        raise
    finally:
        world.stop()
        broker.stop()


def live_through(world: World) -> None:
    """All of it, in the order that the chapters have."""
    world.recorder.chapter = CONVERSATION
    _converse(world)
    world.recorder.chapter = MORE
    _versions_and_ends(world)
    _gangs_and_losses(world)
    _batches_and_access(world)
    _commands(world)
    world.recorder.chapter = READS
    read_all(world.http)


def _converse(world: World) -> None:
    world.add_host("alpha")
    ended = [
        world.finish(world.submit("measuring", name="talk", replicas=2, labels={"team": "a b"}), RunState.SUCCEEDED),
        world.finish(world.submit("measuring", name="talk", parameters={"fail": "always"}), RunState.FAILED),
    ]
    stopped = world.submit("stepping", name="talk-steps")
    world.wait_until_stepping(stopped)
    stopped.stacks(timeout=PATIENCE_S)
    ended.append(world.finish(stopped.cancel(grace_s=5), RunState.CANCELLED))
    world.outcomes = {run.id: {"state": run.state, "result": run.details.result} for run in ended}


def _versions_and_ends(world: World) -> None:
    long = {"checkpoint": CheckpointSpec(every_steps=2000)}
    odd = world.submit("measuring", name="measure", replicas=2, parameters={"points": 5000, "odd": True}, **long)
    world.finish(odd, RunState.SUCCEEDED)
    world.programs["measuring"].write_text(world.programs["measuring"].read_text() + "\n# version two\n")
    second = world.submit("measuring", name="measure", parameters={"points": 30}, priority=3)
    world.finish(second, RunState.SUCCEEDED)
    retried = world.submit("measuring", name="measure", parameters={"fail": "once"}, retries=Retries(user=2))
    world.finish(retried, RunState.SUCCEEDED)
    resumed = world.submit("measuring", name="measure", parameters={"points": 50}, resume_from=second.id)
    world.finish(resumed, RunState.SUCCEEDED)
    world.finish(second.rerun(), RunState.SUCCEEDED)
    job = world.client.job("measure")
    job.rollback(1)
    job.rollback(2)
    job.diff(1, 2)
    waiting = world.submit("measuring", name="too-large", replicas=64, wait_for_devices=True)
    world.finish(waiting.cancel(), RunState.CANCELLED)
    world.client.plan(world.programs["measuring"], name="measure", replicas=2, parameters={"points": 4})


def _gangs_and_losses(world: World) -> None:
    world.add_host("beta")
    gang = world.submit("gang", name="gang", replicas=4, strategy=MirroredSpec(), spread="balance", checkpoint=None)
    world.finish(gang, RunState.SUCCEEDED)
    enough = world.directory / "enough"
    drained = world.submit("stepping", name="moved", replicas=2, parameters={"until": str(enough)})
    world.wait_until_stepping(drained)
    first = _host_of(world, drained)
    world.client.drain_host(first.id)
    wait_until(lambda: len([*drained.refresh().attempts]) == 2, timeout_s=PATIENCE_S, what="it moved")
    world.wait_until_stepping(drained, 20)
    world.client.undrain_host(first.id)
    lost = world.hosts[_host_of(world, drained).name]
    lost.kill()
    wait_until(lambda: len([*drained.refresh().attempts]) == 3, timeout_s=PATIENCE_S, what="its host is lost")
    before = lost.said.count(REGISTERED)
    lost.start()
    wait_until(lambda: lost.said.count(REGISTERED) > before, timeout_s=PATIENCE_S, what="the host is back")
    enough.touch()
    world.finish(drained, RunState.SUCCEEDED)
    for device in [*world.client.devices()]:
        if device.state == "QUARANTINED":
            world.client.release_device(device.id)
    for name in world.hosts:
        world.wait_for(name, 2)


def _host_of(world: World, run: Run) -> Any:  # Any: a host as the API gives it
    newest = max(run.attempts, key=lambda attempt: attempt.number)
    return next(host for host in world.client.hosts() if host.id == newest.members[0].host)


def _batches_and_access(world: World) -> None:
    sweep = world.client.sweep(
        world.programs["measuring"], {"seed": [1, 2], "points": [3, 5]}, batch_name="grid", name="swept"
    )
    sweep.wait(timeout=PATIENCE_S)
    requests = [
        world.client.prepare(world.programs["stepping"], name="many", replicas=64, wait_for_devices=True)
        for _ in range(3)
    ]
    batch = world.client.submit_batch(requests, name="cancelled")
    batch.cancel()
    batch.wait(timeout=PATIENCE_S)
    made = [_make_token(world, name, role) for name, role in (("viewer", "viewer"), ("spent", "operator"))]
    world.http.delete(f"/tokens/{made[1]['id']}").raise_for_status()
    with Client(world.url, made[0]["secret"]) as viewer:
        assert [*viewer.list()]
    world.http.post("/login-codes").raise_for_status()
    world.finish(next(_runs(world, "talk")).rerun(), RunState.SUCCEEDED)


def _make_token(world: World, name: str, role: str) -> Any:  # Any: JSON
    body = {"name": name, "kind": "pat", "role": role, "expires_in_s": 86_400}
    return world.http.post("/tokens", json=body).raise_for_status().json()


def _runs(world: World, job: str) -> Iterator[Run]:
    return (world.client.get(each.id) for each in world.client.list(job=job) if each.state is RunState.SUCCEEDED)


def _commands(world: World) -> None:
    run = next(_runs(world, "measure")).id
    for words in (
        "ps", "ps --json", "jobs", "jobs versions measure", "jobs diff measure 1 2", "batches", "hosts", "version",
        f"logs {run}", f"why {run}", f"checkpoints {run}", f"watch {run}",
    ):  # fmt: skip
        world.command(*words.split())
