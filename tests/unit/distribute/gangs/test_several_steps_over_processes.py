"""``run_steps`` over processes gives, and tells, what it does in one."""

from pathlib import Path

from support.jax_processes import process_groups

FOUND = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from unit.distribute.gangs import several
"""


def test_several_steps_give_and_tell_what_they_do_in_one_process() -> None:
    with process_groups() as groups:
        (expected,) = groups.run(FOUND, "several.trained()", (8,))
        told = groups.run(FOUND, "several.trained()", (4, 4))

    assert [count for count, _ in expected[0]] == [3, 3, 2]
    assert expected[2] == 64
    assert {(origin, step) for origin, step, *_ in expected[3]} == {
        (origin, step) for origin in ("host", "in_step") for step in (0, 3, 6)
    }
    # of reductions the first process tells, for all
    assert told == [expected, [*expected[:3], []]]
