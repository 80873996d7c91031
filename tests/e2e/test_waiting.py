"""Why a run waits, where people look for it: on its page, on the Overview, and in the terminal."""

import re

from playwright.sync_api import Page, expect

from e2e.seen import TIMEOUT_MS, connect
from e2e.test_bad_input import drumline
from e2e.test_stopping import wait_for_step
from support.deployment import DIGITS, Deployment
from support.programs import ENDLESS, Programs


def test_a_waiting_run_says_why_with_the_evidence_and_what_would_let_it_start(
    deployment: Deployment, programs: Programs, page: Page
) -> None:
    with connect(deployment) as client:
        ahead = client.submit(programs.write("endless", ENDLESS), replicas=6)
        wait_for_step(ahead)
        waiting = client.submit(DIGITS, replicas=4)
    sentence = re.compile(r"Needs 4 replicas; \S+ has 2 devices free\.")
    fewer, ends = "Submitted with 2 replicas it would start now.", "Starts when {} ends."
    short = f"r-{ahead.id[-5:].lower()}"

    page.goto(waiting.url)
    why = page.get_by_test_id("run-why")
    expect(why).to_have_attribute("data-rule", "devices_busy", timeout=TIMEOUT_MS)
    expect(why).to_contain_text(sentence)
    expect(why).to_contain_text("Position 1 in the queue.")
    expect(why).to_contain_text(re.compile(r"wanted 4\s*free 2"))
    expect(why.get_by_test_id("run-suggestions").get_by_role("listitem")).to_have_text([fewer, ends.format(short)])
    expect(why.get_by_role("link", name=short)).to_have_attribute("href", f"/runs/{ahead.id}/metrics")

    page.goto(deployment.url)
    line = page.get_by_role("listitem").filter(has=page.locator(f"a[href*='{waiting.id}']"))
    expect(line).to_contain_text(sentence, timeout=TIMEOUT_MS)
    expect(line).to_contain_text("It starts when enough devices are free")

    told = drumline(deployment, "why", f"r-{waiting.id[-5:].lower()}").stdout
    assert sentence.search(told), told
    assert fewer in told, told
    assert ends.format(ahead.id) in told, told
    assert "rule devices_busy: wanted 4, free 2" in told


def test_the_plan_of_a_run_that_would_wait_comes_into_sight_and_says_as_much(
    deployment: Deployment, programs: Programs, page: Page
) -> None:
    with connect(deployment) as client:
        wait_for_step(client.submit(programs.write("endless", ENDLESS), replicas=6))
    page.goto(f"{deployment.url}/submit")
    replicas = page.get_by_role("textbox", name="Replicas")
    replicas.fill("4")
    for _ in range(2):
        page.get_by_role("button", name="Plan", exact=True).click()
        why = page.get_by_test_id("plan").get_by_test_id("run-why")
        expect(why).to_contain_text("Submitted with 2 replicas it would start now.", timeout=TIMEOUT_MS)
        expect(why).to_be_in_viewport(ratio=1)
        replicas.scroll_into_view_if_needed()
        expect(why).not_to_be_in_viewport(ratio=1)
