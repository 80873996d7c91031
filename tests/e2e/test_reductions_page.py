"""Reductions on the page and in the SDK: several of one name in a step, and large ones with every element."""

from playwright.sync_api import Page, expect

from drumline.contracts.spec import RecordSpec
from drumline.contracts.states import RunState
from drumline.resources.reductions import replay
from e2e.conftest import Screenshots
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


LARGE = """
    import jax
    import jax.numpy as jnp


    def main(run):
        \"\"\"Reduces 64 KiB of each replica outside of its step and inside, and once numbers with a NaN.\"\"\"
        import drumline.distribute as dist

        def step(scale):
            part = jnp.arange(16384, dtype=jnp.float32) * (scale + 0.1 * jax.lax.axis_index("replica"))
            return part, dist.all_reduce("sum", part)

        parts, _ = run.strategy.run(step, args=(0.3,))
        run.strategy.reduce("mean", parts, axis=None, name="gradient")
        odd = run.strategy.run(lambda: jnp.where(jnp.arange(3) == 1, jnp.nan, 1.0))
        run.strategy.reduce("sum", odd, axis=None, name="odd")
        run.log(step=0, done=1.0)
"""


def test_large_reductions_are_replayed_from_every_element_once_somebody_asks(
    deployment: Deployment, programs: Programs, page: Page, screenshots: Screenshots
) -> None:
    with connect(deployment) as client:
        record = RecordSpec(reductions_every=1, large_reductions_every=1)
        run = client.submit(programs.write("large", LARGE), replicas=4, record=record)
        assert run.wait(timeout=120).state is RunState.SUCCEEDED, run.reason
        of_host = run.reductions("gradient").at(step=0)
        assert str(replay(of_host)) == "replayed: bit for bit, added in the order of the replicas"
        names = {name.name: name.origin for name in run.reductions().names()}
        (in_step,) = (name for name, origin in names.items() if origin == "in_step")
        assert replay(run.reductions(in_step).at(step=0)).outcome in ("bit for bit", "within the bound")

    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    open_settled(page, f"{run.url}/reductions?var=gradient")
    result = page.get_by_test_id("reduction-result")
    expect(result).to_contain_text("Arrays of up to 16,384 elements: every one is kept")
    assert [url for url in asked if url.endswith("/values")] == []
    screenshots.take(page, "run-reductions-large.png")
    result.get_by_role("button", name="Replay").click()
    expect(result.get_by_test_id("replay")).to_have_text("replayed: bit for bit, added in the order of the replicas")
    assert len(page.content()) < 500_000  # none of the elements is in the document
    screenshots.take(page, "run-reductions-replayed.png")
    open_settled(page, f"{run.url}/reductions?var=odd")
    expect(page.get_by_test_id("not-finite")).to_have_text(
        "4 of the elements put in and 1 of the result are NaN or infinite."
    )
    screenshots.take(page, "run-reductions-odd.png")
