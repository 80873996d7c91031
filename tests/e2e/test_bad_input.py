"""What goes wrong is said in words, typed, and loses nothing: by the CLI, by the API, and on the page."""

import socket
import subprocess
import uuid
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from e2e.conftest import Screenshots
from e2e.pages import THEMES, follow, open_settled, signed_in
from e2e.seen import TIMEOUT_MS, connect
from e2e.test_pages import axe_violations
from support.deployment import DIGITS, DRUMLINE, Deployment
from support.programs import RAISES, Programs

ACCEPTED, FAILED, USAGE, SERVER = 0, 1, 2, 3


def drumline(deployment: Deployment, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The CLI as a user runs it."""
    return subprocess.run(
        [str(DRUMLINE), *arguments],
        env={**deployment.environment, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_more_replicas_than_devices_are_refused_with_both_numbers(deployment: Deployment) -> None:
    refused = drumline(deployment, "submit", str(DIGITS), "--replicas", "9")

    assert refused.returncode == USAGE
    assert "9" in refused.stderr
    assert "8" in refused.stderr
    assert "--wait-for-devices" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_waiting_for_devices_queues_the_run_and_says_why(
    deployment: Deployment, browser: Browser, screenshots: Screenshots
) -> None:
    queued = drumline(deployment, "submit", str(DIGITS), "--replicas", "9", "--wait-for-devices", "--detach")
    assert queued.returncode == ACCEPTED, queued.stderr
    run_id = queued.stdout.split()[0]

    with connect(deployment) as client:
        run = client.get(run_id)
        assert run.state == "QUEUED"
        assert run.details.why is not None
        assert "9" in run.details.why.sentence
        assert "QUEUED (fleet is too small for it)" in drumline(deployment, "ps", "--live").stdout
        with signed_in(browser, deployment, bypass_csp=True) as page:
            open_settled(page, f"{deployment.url}/runs")
            for theme in THEMES:
                follow(page, theme)
                for width in (1440, 1024, 390):
                    page.set_viewport_size({"width": width, "height": 900})
                    row = page.get_by_role("row").filter(has=page.locator(f"a[href*='{run_id}']"))
                    because = row.get_by_text("fleet is too small for it")
                    expect(because.filter(visible=True)).to_have_count(1, timeout=TIMEOUT_MS)
                    screenshots.take(page, f"runs-waiting-{theme}-{width}.png")
                    assert axe_violations(page) == [], f"{theme} at {width} px"
        assert run.cancel().state == "CANCELLED"


def test_a_program_that_raises_fails_with_its_traceback_everywhere(
    deployment: Deployment, programs: Programs, page: Page
) -> None:
    failed = drumline(deployment, "submit", str(programs.write("raises", RAISES)))

    assert failed.returncode == FAILED
    printed = failed.stdout + failed.stderr
    assert "the learning rate went out for a walk" in printed
    with connect(deployment) as client:
        run = client.get(failed.stdout.split()[0])
        assert run.reason is not None
        assert run.reason.code == "PROGRAM_ERROR"
        log = "".join(segment.text for segment in run.logs())
        assert "about to fail" in log
        assert 'raise ValueError("the learning rate went out for a walk")' in log
        page.goto(run.url)
        expect(page.get_by_test_id("run-failure")).to_contain_text("the learning rate went out for a walk")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--strategy", "mirored"], ["mirored", "mirrored"]),
        (["-p", "learning_rat=0.1"], ["learning_rat", "learning_rate"]),
        (["-p", "epochs=many"], ["epochs", "many"]),
        (["--replicas", "0"], ["replicas", "0"]),
    ],
    ids=["unknown strategy", "unknown parameter", "parameter of the wrong type", "no replicas"],
)
def test_the_cli_refuses_with_the_value_and_the_fix(
    deployment: Deployment, arguments: list[str], words: list[str]
) -> None:
    refused = drumline(deployment, "submit", str(DIGITS), *arguments)

    assert refused.returncode == USAGE
    assert all(word in refused.stderr for word in words), refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_program_without_an_entrypoint_is_refused(deployment: Deployment, programs: Programs) -> None:
    refused = drumline(deployment, "submit", str(programs.write("no_main", "x = 1\n")))

    assert refused.returncode == USAGE
    assert "main(run" in refused.stderr


def test_a_wrong_token_is_told_apart_from_a_server_that_is_not_there(deployment: Deployment) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{unused.getsockname()[1]}"
        unreachable = drumline(deployment, "ps", DRUMLINE_URL=nowhere)
    denied = drumline(deployment, "ps", DRUMLINE_TOKEN="drm_pat_wrong")

    assert unreachable.returncode == SERVER
    assert nowhere in unreachable.stderr
    assert denied.returncode != ACCEPTED
    assert "token" in denied.stderr.lower()
    assert "Traceback" not in unreachable.stderr + denied.stderr


@pytest.mark.parametrize(
    ("body", "content_type", "status", "code"),
    [
        (b"this is no zip", "application/zip", 422, "bad_bundle"),
        (b"\x00" * (65 * 2**20), "application/zip", 413, "payload_too_large"),
        (b"def main(run:\n", "text/x-python", 422, "bad_bundle"),
        (b"{}", "application/json", 415, "unsupported_media_type"),
    ],
    ids=["no zip", "over the cap", "syntax error", "media type"],
)
def test_bad_bundles_are_refused(
    deployment: Deployment, body: bytes, content_type: str, status: int, code: str
) -> None:
    with deployment.http() as http:
        answer = http.post(
            "/bundles", params={"filename": "x.py"}, content=body, headers={"Content-Type": content_type}
        )

    assert answer.status_code == status, answer.text
    assert answer.json()["code"] == code


def test_without_a_token_nothing_is_told(deployment: Deployment) -> None:
    answer = httpx2.get(f"{deployment.url}/api/v1/runs")

    assert answer.status_code == httpx2.codes.UNAUTHORIZED
    assert answer.json()["code"] == "unauthenticated"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"job": {"name": "Digits!"}}, "name"),
        ({"resources": {"replicas": "eight"}}, "replicas"),
        ({"resources": {"replicas": 8, "colour": "red"}}, "colour"),
        ({"job": {"strategy": {"kind": "mirored"}}}, "strategy"),
        ({"labels": {"team": "\x00"}}, "team"),
    ],
    ids=["name", "replicas", "unknown field", "strategy", "NUL in a label"],
)
def test_a_malformed_submission_names_the_field(
    deployment: Deployment, change: dict[str, Any], field: str, tmp_path: Path
) -> None:
    job = {"name": "digits", "program": {"bundle": f"sha256:{'0' * 64}", "entrypoint": "digits:main"}}
    body = {"resources": {"replicas": 8}, **change, "job": {**job, **change.get("job", {})}}
    with deployment.http() as http:
        answer = http.post("/runs", json=body, headers={"Idempotency-Key": uuid.uuid4().hex})

    assert answer.status_code == httpx2.codes.UNPROCESSABLE_CONTENT, answer.text
    assert any(field in error["field"] or field in error["message"] for error in answer.json()["errors"]), answer.text
