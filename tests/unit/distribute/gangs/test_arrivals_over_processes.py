"""Of processes that compute together the one that comes last is named, by what each measures on its own clock."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from drumline.contracts.arrivals import ArrivalSample
from drumline_server.telemetry.step_times import Comparison, compare, find_straggler
from support.jax_processes import ProcessGroups, process_groups
from unit.distribute.gangs.arriving import DELAY_S

FOUND = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from unit.distribute.gangs import arriving
"""
HALF_US = DELAY_S * 1e6 / 2


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessGroups]:
    """Two processes serve all tests."""
    with process_groups() as groups:
        yield groups


def compared(processes: ProcessGroups, kind: str) -> Comparison:
    """What the two measured of one loop."""
    members = []
    for told in processes.run(FOUND, f"arriving.measured({kind!r})", (1, 1)):
        samples = [ArrivalSample.model_validate(one) for one in told]
        members.append({each.call: [tuple(one.model_dump().values()) for one in each.points] for each in samples})
    return compare(members)


@pytest.mark.parametrize(("kind", "by"), [("input", "input_us"), ("code", "own_code_us"), ("between", "own_code_us")])
def test_the_member_that_comes_late_is_named_with_what_made_it_late(
    processes: ProcessGroups, kind: str, by: str
) -> None:
    found = compared(processes, kind)
    straggler = find_straggler(found, ("alpha", "beta"))

    assert straggler is not None, found
    assert (straggler.rank, straggler.host_name) == (1, "beta")
    assert straggler.gain_ms > HALF_US / 1e3
    middle = sorted(found.steps, key=lambda step: getattr(step[1], by))[len(found.steps) // 2]
    punctual, late = middle
    assert getattr(late, by) > HALF_US > getattr(punctual, by), middle
    assert punctual.wait_us > HALF_US > late.wait_us, middle


@pytest.mark.parametrize("kind", ["even", "devices"])
def test_nobody_is_named_where_all_come_alike_or_the_devices_of_one_take_longer(
    processes: ProcessGroups, kind: str
) -> None:
    found = compared(processes, kind)

    assert len(found.calls) >= 5
    assert find_straggler(found, ("alpha", "beta")) is None, found
