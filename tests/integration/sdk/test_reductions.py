"""The recorded reductions of a run as its client has them: by name and step, explained, with every element."""

from array import array
from operator import add
from typing import Any

import pytest

from drumline import errors
from drumline.contracts import api
from drumline.resources.reduction_arithmetic import WholeArrays, replay
from drumline.resources.reductions import explain
from drumline.resources.runs import Run
from support.answers import ATTEMPT_ID, RUN_ID
from support.edge import EdgeServer
from support.layer import Answer, ok


def test_reduction_is_found_by_name_and_step_and_explains_itself(run: Run, server: EdgeServer) -> None:
    reduction = _reduction()
    path = f"/runs/{RUN_ID}/reductions"
    server.layer.answer_instead("GET", path, ok({"items": [reduction], "next": None}))
    server.layer.answer_instead("GET", f"{path}/{reduction['id']}", ok(reduction))
    found = run.reductions("loss").at(step=10)
    assert server.layer.sent("GET", path)[0].query == {"name": ["loss"], "step_from": ["10"], "step_to": ["10"]}
    assert explain(found).splitlines() == [
        "loss, step 10: mean over replicas and axis 0",
        "  replica 0   [1, 2]  (2 elements)",
        "  replica 1   6  (1 elements)",
        "  = 3, divided by 3",
        "  not 9: SUM for MEAN: not divided by 3",
        "  not 3.75: mean of the replicas' own means",
        "  not 4.5: divided by the 2 replicas, not the elements",
        "  not 1.5: replica 0 alone",
        "  replayed: bit for bit, added in the order of the replicas",
    ]


def test_a_reduction_of_large_arrays_tells_who_stands_apart_and_what_recording_costs() -> None:
    part = {"shape": [2000], "dtype": "float32", "min": -1, "max": 1, "mean": 0, "norm": 2, "cosine": 0.5}
    apart = {"replica": 1, "by": "norm", "value": 2, "median": 1, "deviations": 7.25}
    sampling = {"every": 500, "is_chosen": True, "extra_s": 0.02, "plain_s": 0.01}
    large = {**_reduction(), "axis": None, "inputs": [part] * 2, "counts": [1, 1], "output": part}
    told = explain(api.Reduction(**large, outliers=[apart], outlier_count=3, sampling=sampling)).splitlines()
    figures = "float32[2000] mean 0, norm 2, from -1 to 1, cosine 0.500"
    assert told[1] == f"  replica 0   {figures}"
    assert told[2] == f"  replica 1   {figures}  ! norm 2, 7.2 deviations from the median, 1"
    assert told[-3].startswith("  not replayed: the values were not kept")
    assert told[-2] == "  3 outliers, of which the first 1 are marked"
    assert told[-1] == "  recorded every 500 calls: 0.02 s more than a call of 0.01 s, 0.40% of the time"


def test_elements_of_large_arrays_are_read_once_they_are_asked_for(run: Run, server: EdgeServer) -> None:
    parts = [array("f", [number / 7] * 2000) for number in (1, 2, 0)]
    parts[2] = array("f", map(add, *parts[:2]))
    large = {"shape": [2000], "dtype": "float32", "mean": 0, "norm": 2, "min": -1, "max": 1}
    whole = {**_reduction(), "op": "sum", "axis": None, "counts": [1, 1], "denominator": None, "whole_bytes": 24_000}
    whole = {**whole, "inputs": [large] * 2, "output": large, "result_shape": [2000], "result": None}
    path = f"/runs/{RUN_ID}/reductions"
    server.layer.answer_instead("GET", f"{path}/{whole['id']}", ok(whole))
    values = Answer(body=b"".join(part.tobytes() for part in parts), media_type="application/octet-stream")
    server.layer.answer_instead("GET", f"{path}/{whole['id']}/values", values)

    found = run.reductions("loss").get(whole["id"])
    assert server.layer.sent("GET", f"{path}/{whole['id']}/values") == []
    assert replay(found).outcome == "bit for bit"
    assert "replayed: bit for bit" in explain(found)
    assert found.whole() == WholeArrays(tuple(part.tobytes() for part in parts[:2]), parts[2].tobytes())
    assert len(server.layer.sent("GET", f"{path}/{whole['id']}/values")) == 1

    assert str(replay(api.Reduction.model_validate(whole))).endswith("what `run.reductions(name).at(step)` returns")


def test_each_of_several_reductions_of_one_step_is_had(run: Run, server: EdgeServer) -> None:
    first, second = ({**_reduction(), "id": f"red_{number:026d}", "nth": number, "of": 2} for number in (1, 2))
    path = f"/runs/{RUN_ID}/reductions"
    server.layer.answer_instead("GET", path, *[ok({"items": [first, second], "next": None})] * 4)
    for one in (first, second):
        server.layer.answer_instead("GET", f"{path}/{one['id']}", *[ok(one)] * 2)
    reductions = run.reductions("loss")
    assert [one.nth for one in reductions.all_at(step=10)] == [1, 2]
    assert (reductions.at(step=10).nth, reductions.at(step=10, nth=2).nth) == (1, 2)
    assert explain(reductions.at(step=10, nth=2)).startswith("loss (2 of 2), step 10: ")


def test_a_reduction_beyond_those_of_its_step_is_told_with_their_number(run: Run, server: EdgeServer) -> None:
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}/reductions", ok({"items": [_reduction()], "next": None}))
    with pytest.raises(errors.RunError, match="no reduction 'loss' number 3 at step 10"):
        run.reductions("loss").at(step=10, nth=3)


def test_reduction_that_was_not_recorded_is_told(run: Run, server: EdgeServer) -> None:
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}/reductions", ok({"items": [], "next": None}))
    with pytest.raises(errors.RunError, match="'loss' was recorded at step 3"):
        run.reductions("loss").at(step=3)


def _array(*values: float) -> dict[str, Any]:
    return {"shape": [len(values)], "dtype": "float32", "values": list(values)}


def _reduction() -> dict[str, Any]:
    return {
        "id": "red_01JD0000000000000000000000", "attempt": ATTEMPT_ID, "step": 10, "name": "loss", "op": "mean",
        "axis": 0, "origin": "host", "replicas": 2, "ragged": True, "result_shape": [], "result": 3.0,
        "inputs": [_array(1, 2), _array(6)], "counts": [2, 1], "denominator": 3, "output": {**_array(3), "shape": []},
        "recorded_at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
