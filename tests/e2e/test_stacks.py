"""Where the processes of a live run stand, on demand: through SDK, command line and REST, before any limit."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest
from playwright.sync_api import Browser, expect

from drumline import Client, Run
from drumline.contracts.stacks import MemberStacks
from drumline.errors import ConflictError
from e2e.conftest import Screenshots
from e2e.pages import THEMES, follow, signed_in
from e2e.seen import TIMEOUT_MS, connect
from e2e.test_pages import axe_violations
from support.deployment import DRUMLINE, Deployment
from support.processes import processes_of, wait_until
from support.programs import Programs

ANSWERED_S = 2.0
STANDS = """
    import ctypes
    import threading

    import jax.numpy as jnp

    import drumline.distribute as dist


    def wait_for_the_loader() -> None:
        threading.Event().wait()


    def hold_the_interpreter() -> None:
        mutex = ctypes.create_string_buffer(64)
        for _ in range(2):  # the second time it waits for itself, in a call that releases nothing
            ctypes.PyDLL(None).pthread_mutex_lock(mutex)


    def train(x):
        return dist.all_reduce("mean", dist.all_reduce("sum", x) * 2)


    def main(run, *, holds: bool = False):
        \"\"\"Makes three steps and stands still.\"\"\"
        for step in range(3):
            run.strategy.run(train, args=(jnp.ones(5),))
            run.log(step=step, x=1.0)
        print("stands", flush=True)
        (hold_the_interpreter if holds else wait_for_the_loader)()
"""


@pytest.fixture
def client(deployment: Deployment) -> Iterator[Client]:
    """The SDK; whatever a test left running is stopped."""
    with connect(deployment) as client:
        yield client
        for summary in list(client.list(states=["QUEUED", "PLACED", "RUNNING", "RETRY_WAIT", "CANCELLING"])):
            client.get(summary.id).cancel(grace_s=0).wait(timeout=60)


def standing_run(client: Client, programs: Programs, *, holds: bool = False) -> Run:
    run = client.submit(programs.write("stands", STANDS), replicas=2, parameters={"holds": holds})

    def stands() -> bool:
        return "stands" in "".join(segment.text for segment in run.logs())

    wait_until(stands, timeout_s=60, what="it stands still")
    return run


def ask(run: Run) -> tuple[MemberStacks, float]:
    """The only member's answer, and how long it took."""
    asked_at = time.monotonic()
    told = run.ask_stacks()
    took_s = time.monotonic() - asked_at
    assert told.is_complete
    (member,) = told.members
    return member, took_s


def runner(deployment: Deployment) -> psutil.Process:
    for process in processes_of(deployment.data_dir):
        with suppress(psutil.Error):
            if process.cwd().endswith("/scratch"):
                return process
    raise AssertionError("no program runs")


@pytest.mark.parametrize("holds", [False, True], ids=["waits", "holds the interpreter"])
def test_a_process_tells_its_stacks_phase_and_last_program_although_it_holds_its_interpreter(
    client: Client, programs: Programs, holds: bool
) -> None:
    run = standing_run(client, programs, holds=holds)
    member, took_s = ask(run)

    assert took_s < ANSWERED_S
    assert member.standing is not None
    assert ("in hold_the_interpreter" if holds else "in wait_for_the_loader") in member.standing.python
    assert "drumline_worker" not in member.standing.python.partition("\n\n")[0]
    assert "libc.so" in member.standing.threads, member.standing.threads
    program = member.standing.program
    assert program is not None
    assert (member.standing.step, program.name, program.executor) == (2, "train", "spmd")
    assert [(each.kind, each.op, each.dtype, each.shape) for each in program.collectives] == [
        ("all_reduce", "sum", "float32", (5,)),
        ("all_reduce", "mean", "float32", (5,)),
    ]
    assert run.refresh().state == "RUNNING", "to ask disturbs nothing"
    again, _ = ask(run)
    assert again.answered_at is not None
    assert member.answered_at is not None
    assert again.answered_at > member.answered_at


def test_a_stopped_process_is_said_to_be_stopped_and_is_left_so(
    client: Client, programs: Programs, deployment: Deployment
) -> None:
    run = standing_run(client, programs)
    process = runner(deployment)
    process.send_signal(signal.SIGSTOP)
    try:
        member, took_s = ask(run)
        assert took_s < ANSWERED_S
        assert member.standing is not None
        assert member.standing.python == ""
        assert "The process is stopped" in member.standing.missing
        assert "T (stopped)" in member.standing.threads
        assert process.status() == psutil.STATUS_STOPPED
    finally:
        process.send_signal(signal.SIGCONT)
    member, _ = ask(run)
    assert member.standing is not None
    assert "in wait_for_the_loader" in member.standing.python


def test_the_command_line_prints_where_a_run_stands(client: Client, programs: Programs, deployment: Deployment) -> None:
    run = standing_run(client, programs)
    environment = deployment.environment

    def say(*options: str) -> str:
        command = [str(DRUMLINE), "stacks", run.id, *options]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout

    told = say()
    assert told.startswith("rank 0 on ")
    assert "last dispatched in step 2: train (" in told
    assert "  1. all_reduce sum " in told
    assert "in wait_for_the_loader" in told
    assert json.loads(say("--json"))["members"][0]["standing"]["step"] == 2


def test_of_a_run_without_a_process_nothing_is_asked(client: Client, programs: Programs) -> None:
    run = client.submit(programs.write("returns", "def main(run):\n    return 1\n")).wait(timeout=60)

    with pytest.raises(ConflictError, match="No process of run"):
        run.ask_stacks()
    assert run.stacks() == []


def test_the_page_of_a_run_shows_where_it_stands_when_asked(
    client: Client, programs: Programs, deployment: Deployment, browser: Browser, screenshots: Screenshots
) -> None:
    run = standing_run(client, programs)
    with signed_in(browser, deployment, bypass_csp=True) as page:
        for width, height in ((1440, 900), (390, 844)):
            page.set_viewport_size({"width": width, "height": height})
            page.goto(f"{deployment.url}/runs/{run.id}")
            page.get_by_role("button", name="Where does it stand?").click()
            stands = page.get_by_test_id("live-stacks")
            expect(stands).to_contain_text("in wait_for_the_loader", timeout=TIMEOUT_MS)
            expect(stands).to_contain_text("Last dispatched in step 2: train")
            expect(stands).to_contain_text("all_reduce mean")
            wider = page.evaluate("() => document.documentElement.scrollWidth - window.innerWidth")
            assert wider <= 0, f"{wider} px wider than a screen of {width} px"
            for theme in THEMES:
                follow(page, theme)
                screenshots.take(page, f"stacks-{theme}-{width}.png")
                assert axe_violations(page) == [], f"{theme} at {width} px"
    assert run.refresh().state == "RUNNING"
