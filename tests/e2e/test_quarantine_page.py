"""What an operator does with hosts and devices: quarantine shown with its evidence and ended, a drain and its end."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from drumline.contracts.reasons import EndReason
from e2e.conftest import Screenshots
from support.core import Core, Worker
from support.edge import EdgeServer, edge_server


def fail_on(core: Core, worker: Worker, times: int) -> None:
    for _ in range(times):
        core.submit(resources={"replicas": worker.device_count}, retries={"infrastructure": 0})
        core.schedule()
        worker.take().start().end(EndReason.KILLED)
        core.clock.advance(5)
        worker.beat()


@pytest.fixture
def fleet(sqlite_url: str, tmp_path: Path) -> Iterator[EdgeServer]:
    """Host `bad` is quarantined, and a device of `good` as well."""
    with edge_server(sqlite_url, tmp_path / "data") as server:
        bad = server.core.add_worker("bad", devices=2)
        fail_on(server.core, bad, 3)
        good = server.core.add_worker("good", devices=4)
        server.core.reap()
        run = server.core.submit(resources={"replicas": 1})
        server.core.schedule()
        good.take().start().end(EndReason.SHIM_KILLED, devices_released=False)
        assert server.core.run(run.id).hosts == ("good",)
        yield server


@pytest.fixture
def devices_page(browser: Browser, fleet: EdgeServer) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    page = context.new_page()
    code = fleet.admin.post("/api/v1/login-codes").raise_for_status().json()["code"]
    page.goto(f"{fleet.url}/login?next=%2Fdevices#code={code}")
    page.get_by_role("table", name="Hosts").wait_for()
    yield page
    context.close()


def test_operator_sees_why_a_host_is_quarantined_and_releases_it(devices_page: Page, screenshots: Screenshots) -> None:
    devices_page.get_by_role("table", name="Hosts").get_by_role("button", name="bad").click()
    details = devices_page.get_by_role("complementary", name="Details")
    expect(details).to_contain_text("3 runs failed here within 10 minutes")
    expect(details.get_by_text("KILLED")).to_have_count(3)
    for theme in ("light", "dark"):
        devices_page.emulate_media(color_scheme=theme)
        screenshots.take(devices_page, f"quarantine-host-{theme}.png")
    details.get_by_role("button", name="Release host").click()
    expect(details).not_to_contain_text("3 runs failed")
    expect(details).to_contain_text("Live")


def test_operator_sees_why_a_device_is_quarantined_and_frees_it_after_a_second_thought(
    devices_page: Page, screenshots: Screenshots
) -> None:
    devices_page.get_by_role("button", name=re.compile("on good: quarantined")).click()
    details = devices_page.get_by_role("complementary", name="Details")
    expect(details).to_contain_text("could not prove that every process")
    details.get_by_role("button", name="Release device").click()
    expect(details).to_contain_text("Is its last run certainly dead?")
    for theme in ("light", "dark"):
        devices_page.emulate_media(color_scheme=theme)
        screenshots.take(devices_page, f"quarantine-device-{theme}.png")
    details.get_by_role("button", name="Release device").click()
    expect(details.get_by_text("Free", exact=True)).to_be_visible()


def test_operator_drains_a_host_after_a_second_thought_and_takes_it_back(devices_page: Page, fleet: EdgeServer) -> None:
    run = fleet.core.submit(resources={"replicas": 1})
    fleet.core.schedule()
    assert fleet.core.run(run.id).hosts == ("good",)
    devices_page.reload()
    devices_page.get_by_role("table", name="Hosts").get_by_role("button", name="good").click()
    details = devices_page.get_by_role("complementary", name="Details")
    details.get_by_role("button", name="Drain", exact=True).click()
    expect(details).to_contain_text("Its runs stop in their grace and resume elsewhere.")
    details.get_by_role("button", name="Not now").click()
    assert not is_draining(fleet, "good")
    details.get_by_role("button", name="Drain", exact=True).click()
    details.get_by_role("button", name="Drain", exact=True).click()
    expect(details.get_by_role("button", name="Undrain")).to_be_visible()
    assert is_draining(fleet, "good")
    details.get_by_role("button", name="Undrain").click()
    expect(details.get_by_role("button", name="Drain", exact=True)).to_be_visible()
    assert not is_draining(fleet, "good")


def is_draining(fleet: EdgeServer, name: str) -> bool:
    """As the API says of the host of this name."""
    hosts = fleet.admin.get("/api/v1/hosts").raise_for_status().json()["items"]
    return bool(next(host for host in hosts if host["name"] == name)["drain_requested"])
