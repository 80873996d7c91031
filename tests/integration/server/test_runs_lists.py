"""Lists of runs: paged, filtered."""

from typing import Any

import pytest

from drumline.contracts.states import RunState
from support.core import Core

pytestmark = pytest.mark.both_databases


def test_list_is_paged_newest_first_without_gap_or_double(core: Core) -> None:
    core.add_worker()
    runs = []
    for number in range(5):
        runs.append(core.submit(priority=number).id)
        core.clock.advance(number % 2)  # some share their microsecond

    first = core.runs(limit=2)
    second = core.runs(limit=2, cursor=first.next)
    third = core.runs(limit=2, cursor=second.next)

    shown = [run.id for page in (first, second, third) for run in page.items]
    assert sorted(shown) == sorted(runs)
    assert third.next is None
    assert [core.run(run).created_at for run in shown] == sorted(
        (core.run(run).created_at for run in runs), reverse=True
    )


def test_list_is_filtered_by_state_job_label_and_text(core: Core) -> None:
    core.add_worker()
    digits = core.submit(labels={"team": "vision", "a/b": "%"})
    other = core.submit(job={"name": "other_job"}, labels={"team": "audio"})
    core.cancel(other.id)

    def shown(**filters: Any) -> list[str]:
        return [run.id for run in core.runs(**filters).items]

    assert shown(states=(RunState.CANCELLED,)) == [other.id]
    assert shown(job="digits") == [digits.id]
    assert shown(labels=(("team", "vision"), ("a/b", "%"))) == [digits.id]
    assert shown(labels=(("team", "vision"), ("team", "audio"))) == []
    assert shown(search="her_j") == [other.id]
    assert shown(search="%") == []
    assert shown(search=digits.id[:20]) in ([digits.id], [other.id, digits.id])
