"""Several reductions of one name in a step: the page and the SDK show each."""

from playwright.sync_api import Page, expect

from drumline.contracts.spec import RecordSpec
from drumline.contracts.states import RunState
from e2e.pages import open_settled
from e2e.seen import TIMEOUT_MS, connect
from support.deployment import Deployment
from support.programs import Programs

THREE = """
    import jax.numpy as jnp


    def main(run):
        \"\"\"Reduces three times under one name in its only step.\"\"\"
        for times in (1, 2, 3):
            ones = run.strategy.run(lambda n: jnp.float32(n), args=(times,))
            run.strategy.reduce("sum", ones, axis=None, name="loss")
        run.log(step=0, done=1.0)
"""


def test_each_of_several_reductions_of_one_name_in_a_step_is_shown(
    deployment: Deployment, programs: Programs, page: Page
) -> None:
    with connect(deployment) as client:
        run = client.submit(programs.write("three", THREE), replicas=2, record=RecordSpec(reductions_every=1))
        assert run.wait(timeout=120).state is RunState.SUCCEEDED, run.reason
        assert [one.output.values for one in run.reductions("loss").all_at(step=0)] == [(2.0,), (4.0,), (6.0,)]

    open_settled(page, f"{run.url}/reductions")
    several = page.get_by_test_id("several-reductions")
    expect(several).to_contain_text("3 of this name in this step", timeout=TIMEOUT_MS)
    expect(several.get_by_role("button")).to_have_text(["1 2", "2 4", "3 6"])
    for nth, value in ((1, "2"), (2, "4"), (3, "6")):
        several.get_by_role("button").nth(nth - 1).click()
        expect(page.get_by_test_id("reduction")).to_contain_text(f"{nth} of 3", timeout=TIMEOUT_MS)
        expect(page.get_by_test_id("reduction-result")).to_have_attribute("data-values", value, timeout=TIMEOUT_MS)
