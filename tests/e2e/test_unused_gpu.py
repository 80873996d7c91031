"""A host with an NVIDIA driver whose JAX has no CUDA: it says so, and how to mend it, wherever hosts are shown."""

import os
import subprocess
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from e2e.conftest import Screenshots
from e2e.pages import signed_in
from support.deployment import DRUMLINE, Deployment
from support.processes import wait_until

SMI = "NVIDIA-SMI 580.65.06    Driver Version: 580.65.06    CUDA Version: 13.0"
MESSAGE = "This host has an NVIDIA GPU, driver 580.65.06, CUDA 13, but JAX was installed without support for it"
CURE = "pip install 'drumline[cuda13]'"


@pytest.fixture(scope="module")
def gpu_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A machine whose nvidia-smi answers."""
    directory = tmp_path_factory.mktemp("gpu")
    smi = directory / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(f"#!/bin/sh\necho '{SMI}'\n")
    smi.chmod(0o755)
    path = f"{smi.parent}{os.pathsep}{os.environ['PATH']}"
    deployment = Deployment.start(directory / "data", environment={"PATH": path})
    try:
        deployment.wait_for_devices()
        yield deployment
    finally:
        deployment.stop()


def test_api_terminal_and_up_name_the_cure(gpu_host: Deployment) -> None:
    (host,) = gpu_host.get("/hosts")["items"]
    listed = subprocess.run(
        [str(DRUMLINE), "hosts"], env=gpu_host.environment, capture_output=True, text=True, check=True
    )
    wait_until(lambda: "is ready" in gpu_host.said, timeout_s=60, what="it is ready: no part of it dies")

    (warning,) = host["warnings"]
    assert warning["code"] == "accelerator_unused"
    for said in (warning["message"] + warning["fix"], listed.stdout, gpu_host.said):
        assert MESSAGE in said
        assert CURE in said
    assert MESSAGE in (gpu_host.data_dir / "logs" / "worker.log").read_text()
    assert {device["simulated"] for device in gpu_host.get("/devices")["items"]} == {True}


def test_the_page_of_devices_names_the_cure(gpu_host: Deployment, browser: Browser, screenshots: Screenshots) -> None:
    with signed_in(browser, gpu_host) as page:
        page.goto(f"{gpu_host.url}/devices")
        note = page.get_by_role("main").get_by_role("note")
        expect(note).to_contain_text(MESSAGE)
        expect(note).to_contain_text(CURE)
        page.get_by_role("table", name="Hosts").get_by_role("button").first.click()
        expect(page.get_by_role("complementary", name="Details")).to_contain_text(CURE)
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            screenshots.take(page, f"unused-gpu-{theme}.png")
