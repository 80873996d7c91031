"""A plan for chips as text: one verdict, the contract's."""

import pytest

from drumline.contracts.chips import ChipPlan, PlannedStop, Verdict
from drumline.resources.chip_text import chip_sections

STOP = PlannedStop(why="it needs a number", file="a.py", line=3, code="float(x)")


def plan(*, fits: bool, stopped: PlannedStop | None) -> ChipPlan:
    return ChipPlan(
        slice="v5e:4x4",
        kind="TPU v5 lite",
        devices=16,
        hosts=4,
        compiler="libtpu 0",
        available_bytes=2**34,
        programs=(),
        fits=fits,
        stopped=stopped,
    )


@pytest.mark.parametrize(
    ("fits", "stopped", "verdict", "text"),
    [
        (True, None, "fits", "v5e:4x4: fits ("),
        (False, None, "does_not_fit", "v5e:4x4: DOES NOT FIT ("),
        (True, STOP, "not_known", "v5e:4x4: what was compiled fits, the rest is not known ("),
        (False, STOP, "does_not_fit", "v5e:4x4: DOES NOT FIT ("),
    ],
)
def test_a_plan_that_stopped_has_no_verdict_on_the_whole_program(
    fits: bool, stopped: PlannedStop | None, verdict: Verdict, text: str
) -> None:
    made = plan(fits=fits, stopped=stopped)
    assert made.verdict == verdict
    assert chip_sections(made)[0].startswith(text)
    assert ChipPlan.model_validate(made.model_dump(mode="json")) == made
