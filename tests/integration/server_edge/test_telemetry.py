"""What a run shows of itself, read back as its worker reported it."""

import math
import time
from typing import Any

import pytest

from drumline.contracts.reasons import EndReason
from support.core import Member
from support.edge import EdgeServer

pytestmark = pytest.mark.both_databases


@pytest.fixture
def member(any_server: EdgeServer) -> Member:
    """A running member on 8 devices."""
    worker = any_server.core.add_worker()
    any_server.core.submit(resources={"replicas": 8})
    any_server.core.schedule()
    return worker.take().start()


def get(server: EdgeServer, member: Member, path: str, **parameters: Any) -> Any:
    answer = server.admin.get(f"/api/v1/runs/{member.claimed.run}{path}", params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


def log_metrics(member: Member, name: str, steps: list[int], values: list[float]) -> None:
    now = member.worker.core.clock.now()
    times = [now + step * 1_000_000 for step in steps]
    member.send(member.event("metrics", names=[name] * len(steps), steps=steps, times=times, values=values))


def reduction(member: Member, step: int, inputs: list[float], **changes: Any) -> None:
    def scalar(value: float) -> dict[str, Any]:
        return {"shape": [], "dtype": "float32", "values": [value]}

    body = {"name": "loss", "step": step, "op": "mean", "axis": None, "origin": "host", "counts": [1] * len(inputs)}
    body |= {"inputs": [scalar(value) for value in inputs], "denominator": len(inputs)}
    body |= {"result": scalar(sum(inputs) / len(inputs)), **changes}
    member.send(member.event("reduction", **body))


def print_out(member: Member, text: str, offset: int, stream: str = "stdout") -> int:
    member.send(member.event("log", stream=stream, text=text, offset=offset))
    return offset + len(text.encode())


def test_metrics_come_back_in_full_where_they_are_few(any_server: EdgeServer, member: Member) -> None:
    log_metrics(member, "loss", [1, 2, 3], [3.0, 2.0, 1.0])

    (series,) = get(any_server, member, "/metrics", names="loss")["series"]

    assert (series["n"], series["last_step"], series["bucket_width"]) == (3, 3, 0)
    assert series["points"]["x"] == [1, 2, 3]
    assert series["points"]["last"] == [3.0, 2.0, 1.0]


def test_metrics_are_bucketed_and_bounded(any_server: EdgeServer, member: Member) -> None:
    log_metrics(member, "loss", list(range(2_000)), [float(x == 777) for x in range(2_000)])

    (series,) = get(any_server, member, "/metrics", names="loss", buckets=50)["series"]
    (window,) = get(any_server, member, "/metrics", **{"names": "loss", "from": 770, "to": 780})["series"]

    assert len(series["points"]["x"]) == 50
    assert max(series["points"]["max"]) == 1.0
    assert sum(series["points"]["count"]) == 2_000
    assert window["points"]["x"] == list(range(770, 781))


def test_values_that_are_no_numbers_are_sent_as_words(any_server: EdgeServer, member: Member) -> None:
    log_metrics(member, "loss", [1, 2, 3], [math.nan, math.inf, -math.inf])

    points = get(any_server, member, "/metrics")["series"][0]["points"]

    assert points["last"] == ["NaN", "Infinity", "-Infinity"]
    assert points["max"] == [None, None, None]


def test_time_is_counted_from_the_start_of_the_attempt(any_server: EdgeServer, member: Member) -> None:
    log_metrics(member, "loss", [1, 2], [1.0, 2.0])

    points = get(any_server, member, "/metrics", x="time")["series"][0]["points"]

    assert points["x"] == [1.0, 2.0]


def test_curve_of_a_run_leaves_out_what_was_rolled_back_and_each_attempt_has_its_own(
    any_server: EdgeServer, member: Member
) -> None:
    core, worker = any_server.core, member.worker
    log_metrics(member, "loss", [0, 1, 2, 3], [9.0, 8.0, 7.0, 6.0])
    member.end(EndReason.KILLED, signal=9, exit_code=None)
    core.clock.advance(10)
    core.reap()
    core.schedule()
    second = worker.take().start()
    log_metrics(second, "loss", [2, 3, 4], [17.0, 16.0, 15.0])

    def last(**parameters: str) -> list[float]:
        values: list[float] = get(any_server, member, "/metrics", **parameters)["series"][0]["points"]["last"]
        return values

    assert last() == [9.0, 8.0, 17.0, 16.0, 15.0]
    assert last(attempt=member.claimed.attempt) == [9.0, 8.0, 7.0, 6.0]
    assert last(attempt=second.claimed.attempt) == [17.0, 16.0, 15.0]


@pytest.mark.parametrize(
    "query",
    ["buckets=0", "buckets=2001", "from=nan", "to=inf", "x=hour", "from=1e300", "names=%00", "from=" + "9" * 400],
)
def test_a_window_that_makes_no_sense_is_422(server: EdgeServer, query: str) -> None:
    run = server.core.submit(wait_for_devices=True)

    assert server.admin.get(f"/api/v1/runs/{run.id}/metrics?{query}").status_code == 422


def test_reductions_page_by_step(any_server: EdgeServer, member: Member) -> None:
    for step in range(7):
        reduction(member, step, [1.0 * step, 3.0 * step])
    reduction(member, 3, [1.0], name="accuracy", op="sum", denominator=None)

    first = get(any_server, member, "/reductions", name="loss", step_from=2, limit=3)
    second = get(any_server, member, "/reductions", name="loss", step_from=2, limit=3, cursor=first["next"])

    assert [item["step"] for item in first["items"]] == [2, 3, 4]
    assert [item["step"] for item in second["items"]] == [5, 6]
    assert second["next"] is None
    assert first["items"][0]["result"] == 4.0


def test_a_reduction_shows_what_each_replica_put_in(any_server: EdgeServer, member: Member) -> None:
    reduction(member, 5, [1.0, math.nan, 3.0], counts=[4, 4, 2], axis=0)

    summary = get(any_server, member, "/reductions")["items"][0]
    whole = get(any_server, member, f"/reductions/{summary['id']}")

    assert [one["values"] for one in whole["inputs"]] == [[1.0], ["NaN"], [3.0]]
    assert (whole["counts"], whole["denominator"], whole["output"]["values"]) == ([4, 4, 2], 3, ["NaN"])
    assert (whole["ragged"], whole["replicas"], whole["result"]) == (True, 3, "NaN")


def test_names_of_reductions_come_with_their_steps(any_server: EdgeServer, member: Member) -> None:
    for step in (0, 10, 20):
        reduction(member, step, [1.0, 2.0], counts=[2, 1 if step == 20 else 2], axis=0)

    (name,) = get(any_server, member, "/reductions/names")["names"]

    assert name == {
        "name": "loss",
        "op": "mean",
        "axis": 0,
        "origin": "host",
        "recorded": 3,
        "steps": [0, 10, 20],
        "ragged_steps": [20],
    }


def test_logs_are_read_by_bytes_and_cut_between_characters(any_server: EdgeServer, member: Member) -> None:
    end = print_out(member, "first\nsecond ü\n" * 5, 0)
    end = print_out(member, "err\n", end, "stderr")

    whole = get(any_server, member, "/logs")
    at, pieces = 0, []
    while at < end:
        part = get(any_server, member, "/logs", **{"from": at, "limit": 64})
        pieces += [segment["text"] for segment in part["segments"]]
        assert part["next_byte"] > at
        at = part["next_byte"]

    assert "".join(pieces) == "first\nsecond ü\n" * 5 + "err\n"
    assert [segment["stream"] for segment in whole["segments"]] == ["stdout", "stderr"]
    assert whole["segments"][1]["first_line"] == 11
    assert (whole["end_byte"], whole["next_byte"], whole["lines"], whole["complete"]) == (end, end, 11, False)
    tail = get(any_server, member, "/logs", **{"from": -4})
    assert [segment["text"] for segment in tail["segments"]] == ["err\n"]


def test_reading_from_the_middle_of_a_character_begins_at_the_character(any_server: EdgeServer, member: Member) -> None:
    print_out(member, "üx", 0)

    logs = get(any_server, member, "/logs", **{"from": 1})

    assert (logs["first_byte"], logs["segments"][0]["text"]) == (0, "üx")


def test_lost_output_is_told_at_its_place_with_its_size(any_server: EdgeServer, member: Member) -> None:
    print_out(member, "before\nhalf a li", 0)
    print_out(member, "ne\nafter\n", 10_000)

    whole = get(any_server, member, "/logs")

    lost = "\n[drumline: 9984 bytes of output lost here]\n"
    assert [segment["text"] for segment in whole["segments"]] == ["before\nhalf a li", lost, "ne\nafter\n"]
    assert [segment["gap"] for segment in whole["segments"]] == [None, {"size_bytes": 9_984}, None]
    assert [segment["first_line"] for segment in whole["segments"]] == [1, 2, 4]
    assert (whole["end_byte"], whole["next_byte"], whole["lines"]) == (10_009, 10_009, 5)
    raw = any_server.admin.get(f"/api/v1/runs/{member.claimed.run}/logs/raw").text
    assert raw == f"before\nhalf a li{lost}ne\nafter\n"
    (gap,) = get(any_server, member, "/gaps")["items"]
    assert (gap["what"], gap["size_bytes"], gap["first_byte"], gap["next_byte"]) == ("log", 9_984, 16, 10_000)


def test_who_begins_to_read_in_a_gap_is_told_of_it_and_goes_on_after_it(any_server: EdgeServer, member: Member) -> None:
    print_out(member, "before\n", 0)
    print_out(member, "after\n", 10_000)

    inside = get(any_server, member, "/logs", **{"from": 5_000, "limit": 64})
    rest = get(any_server, member, "/logs", **{"from": inside["next_byte"]})

    assert [(segment["first_byte"], segment["gap"]) for segment in inside["segments"]] == [(7, {"size_bytes": 9_993})]
    assert (inside["first_byte"], inside["next_byte"]) == (7, 10_000)
    assert [segment["text"] for segment in rest["segments"]] == ["after\n"]
    assert get(any_server, member, "/logs", **{"from": 10_006})["segments"] == []


def test_output_is_complete_only_when_it_has_ended_and_nothing_is_lost(any_server: EdgeServer, member: Member) -> None:
    end = print_out(member, "one\n", 0)
    running = get(any_server, member, "/logs")
    print_out(member, "three\n", end + 4)
    member.end(output_bytes=end + 10)
    ended = get(any_server, member, "/logs")

    assert (running["ended"], running["complete"]) == (False, False)
    assert (ended["ended"], ended["complete"]) == (True, False)


def test_lost_metrics_have_their_stretch_of_the_axis_and_their_size(any_server: EdgeServer, member: Member) -> None:
    began = any_server.core.clock.now()

    def log(*steps: int) -> None:
        times = [began + step * 1_000_000 for step in steps]
        names = ["loss"] * len(steps)
        member.send(member.event("metrics", names=names, steps=steps, times=times, values=[0.5] * len(steps)))

    log(1, 2)
    lost = [member.event("gap", what="spool", count=1, size_bytes=size, detail="damaged") for size in (700, 0)]
    member.send(lost[0])
    member.send(lost[1], member.event("gap", what="reduction", count=3))
    log(9)
    member.send(member.event("gap", what="metrics", count=4))

    by_step = get(any_server, member, "/metrics", names=["loss"])["gaps"]
    by_time = get(any_server, member, "/metrics", names=["loss"], x="time")["gaps"]
    items = get(any_server, member, "/gaps")["items"]

    assert by_step == [
        {"start": 2, "end": 9, "count": 2, "size_bytes": 700, "what": "spool"},
        {"start": 9, "end": None, "count": 4, "size_bytes": None, "what": "metrics"},
    ]
    assert by_time[0]["end"] - by_time[0]["start"] == pytest.approx(7)
    assert [(item["what"], item["count"], item["detail"]) for item in items] == [
        ("spool", 2, "damaged"),
        ("reduction", 3, ""),
        ("metrics", 4, ""),
    ]
    assert (items[0]["after_step"], items[0]["before_step"]) == (2, 9)


def test_the_whole_output_downloads_as_a_file(any_server: EdgeServer, member: Member) -> None:
    end = 0
    for number in range(100):
        end = print_out(member, f"line {number} <script>\n", end)

    answer = any_server.admin.get(f"/api/v1/runs/{member.claimed.run}/logs/raw")

    assert answer.text == "".join(f"line {number} <script>\n" for number in range(100))
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in answer.headers["content-security-policy"]


def test_placement_is_scheduled_first_and_confirmed_by_the_engine(any_server: EdgeServer, member: Member) -> None:
    before = get(any_server, member, "/placement")
    devices = [device["device"] for device in before["devices"]]
    placed = [{"replica": replica, "devices": [device]} for replica, device in enumerate(reversed(devices))]
    member.send(
        member.event("placement", strategy="MirroredStrategy", executor="spmd", replicas=placed),
        member.event(
            "variable",
            name="w",
            shape=[2, 2],
            dtype="float32",
            synchronization="ON_WRITE",
            aggregation="MEAN",
            homes=devices,
            size_bytes=16,
        ),
    )
    after = get(any_server, member, "/placement")

    assert (before["confirmed"], before["executor"]) == (False, None)
    assert [replica["replica"] for replica in before["replicas"]] == list(range(8))
    assert len(set(devices)) == 8
    assert (after["confirmed"], after["executor"], after["strategy"]) == (True, "spmd", "MirroredStrategy")
    assert after["replicas"] == placed
    assert after["variables"][0]["homes"] == devices


def test_a_run_that_waits_has_no_placement_and_no_output(server: EdgeServer) -> None:
    run = server.core.submit(wait_for_devices=True)

    placement = server.admin.get(f"/api/v1/runs/{run.id}/placement").json()
    logs = server.admin.get(f"/api/v1/runs/{run.id}/logs").json()
    raw = server.admin.get(f"/api/v1/runs/{run.id}/logs/raw")

    assert (placement["attempt"], placement["devices"]) == (None, [])
    assert (logs["segments"], logs["complete"]) == ([], False)
    assert raw.text == ""


def test_checkpoints_page_from_the_furthest(any_server: EdgeServer, member: Member) -> None:
    for step in (10, 20, 30):
        member.send(member.event("checkpoint", step=step, path=f"f1/step_{step}", size_bytes=1, manifest="sha256:0"))

    first = get(any_server, member, "/checkpoints", limit=2)
    second = get(any_server, member, "/checkpoints", limit=2, cursor=first["next"])

    assert [item["step"] for item in (*first["items"], *second["items"])] == [30, 20, 10]


def test_a_result_that_is_no_number_is_shown_as_a_word(any_server: EdgeServer, member: Member) -> None:
    member.send(member.event("result", value={"loss": math.nan, "note": "<b>"}))
    member.end()

    run = get(any_server, member, "")

    assert run["state"] == "SUCCEEDED"
    assert run["result"] == {"loss": "NaN", "note": "<b>"}
    assert get(any_server, member, "/logs")["complete"] is True


def test_devices_and_hosts_show_who_holds_what(any_server: EdgeServer, member: Member) -> None:
    devices = any_server.admin.get("/api/v1/devices", params={"limit": 5}).json()
    rest = any_server.admin.get("/api/v1/devices", params={"limit": 5, "cursor": devices["next"]}).json()
    (host,) = any_server.admin.get("/api/v1/hosts").json()["items"]

    shown = devices["items"] + rest["items"]
    assert [device["index"] for device in shown] == list(range(8))
    assert {device["run"] for device in shown} == {member.claimed.run}
    assert sorted(device["replica"] for device in shown) == list(range(8))
    assert (host["state"], host["devices"], host["free_devices"], host["runs"]) == ("live", 8, 0, [member.claimed.run])
    any_server.core.clock.advance(16)
    assert any_server.admin.get("/api/v1/hosts").json()["items"][0]["state"] == "suspect"


def test_the_overview_puts_it_all_on_one_page(any_server: EdgeServer, member: Member) -> None:
    waiting = any_server.core.submit(resources={"replicas": 2})

    overview = any_server.admin.get("/api/v1/overview").json()

    assert (overview["devices_total"], overview["devices_held"]) == (8, 8)
    assert [run["id"] for run in overview["running"]] == [member.claimed.run]
    assert [(queued["run"]["id"], queued["why"]["rule"]) for queued in overview["queued"]] == [
        (waiting.id, "devices_busy")
    ]
    assert (overview["running_total"], overview["queued_total"]) == (1, 1)


def test_a_million_points_are_read_in_seconds(server: EdgeServer) -> None:
    worker = server.core.add_worker()
    server.core.submit(resources={"replicas": 8})
    server.core.schedule()
    member = worker.take().start()
    for begin in range(0, 1_000_000, 10_000):
        log_metrics(member, "loss", list(range(begin, begin + 10_000)), [1.0] * 10_000)

    began = time.perf_counter()
    (series,) = get(server, member, "/metrics", names="loss", buckets=1_200)["series"]
    took_s = time.perf_counter() - began

    assert (series["n"], len(series["points"]["x"])) == (1_000_000, 1_200)
    assert took_s < 5
