"""The live stream: each event once and in order, whatever happens to the connection."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drumline import errors
from drumline._transport import Transport
from drumline.resources.run_events import GIVE_UP_S, stream_events
from drumline.resources.runs import Run
from integration.sdk.conftest import Pauses
from support import answers
from support.answers import RUN_ID, end, event
from support.edge import EdgeServer
from support.layer import NO_ANSWER, Answer, events, ok, problem

RESYNC = b"event: resync\ndata: {}\n\n"


def _seqs(transport: Transport, after: int = 0) -> list[int]:
    return [seen.seq for seen in stream_events(transport, RUN_ID, after)]


def test_stream_ends_with_the_terminal_event_and_not_before(transport: Transport, server: EdgeServer) -> None:
    server.layer.answer_instead(
        "GET", "/stream", events(event(1), event(2, "state", state="SUCCEEDED"), end(3), event(4))
    )
    assert _seqs(transport) == [1, 2, 3]


@pytest.mark.parametrize("cut", [True, False], ids=["cut", "closed"])
def test_after_a_cut_it_goes_on_where_it_was(transport: Transport, server: EdgeServer, cut: bool) -> None:
    server.layer.answer_instead("GET", "/stream", events(event(1), event(2), cut=cut), events(event(3), end(4)))
    assert _seqs(transport) == [1, 2, 3, 4]
    first, second = server.layer.sent("GET", "/stream")
    assert (first.headers["last-event-id"], first.query["from"]) == (f"{RUN_ID}=0", [f"{RUN_ID}=0"])
    assert (second.headers["last-event-id"], second.query["topics"]) == (f"{RUN_ID}=2", [f"run:{RUN_ID}"])


def test_event_cut_in_the_middle_is_not_taken_for_whole(transport: Transport, server: EdgeServer) -> None:
    server.layer.answer_instead("GET", "/stream", events(event(1), event(2)[:-20], cut=True), events(event(2), end(3)))
    assert _seqs(transport) == [1, 2, 3]


def test_events_that_come_again_are_dropped(transport: Transport, server: EdgeServer) -> None:
    server.layer.answer_instead(
        "GET", "/stream", events(event(1), event(2), cut=True), events(event(1), event(2), event(3), end(4))
    )
    assert _seqs(transport) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "trouble", [NO_ANSWER, Answer(503), problem(429, "rate_limited"), events(RESYNC), events(b": ping\n\n")]
)
def test_trouble_between_two_connections_is_sat_out(transport: Transport, server: EdgeServer, trouble: Answer) -> None:
    server.layer.answer_instead("GET", "/stream", events(event(1), cut=True), trouble, trouble, events(end(2)))
    assert _seqs(transport) == [1, 2]


def test_a_hint_or_an_unknown_event_is_passed_over(transport: Transport, server: EdgeServer) -> None:
    server.layer.answer_instead(
        "GET", "/stream", events(b'event: hint\ndata: {"topic": "runs"}\n\nevent: new\ndata: x\n\n', end(1))
    )
    assert _seqs(transport) == [1]


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refusal_is_not_tried_again(transport: Transport, server: EdgeServer, status: int) -> None:
    server.layer.answer_instead("GET", "/stream", problem(status, "no"))
    with pytest.raises(errors.APIError):
        _seqs(transport)
    assert len(server.layer.sent("GET", "/stream")) == 1


@pytest.mark.parametrize(
    "answer",
    [Answer(200, b"<html>", "text/html"), events(b"event: run\ndata: {}\n\n"), events(b"event: run\ndata: x\n\n")],
)
def test_what_is_no_stream_of_ours_is_an_error(transport: Transport, server: EdgeServer, answer: Answer) -> None:
    server.layer.answer_instead("GET", "/stream", answer)
    with pytest.raises(errors.StreamError):
        _seqs(transport)


def test_an_event_without_end_is_an_error_and_fills_no_memory(transport: Transport, server: EdgeServer) -> None:
    server.layer.answer_instead("GET", "/stream", events(*[b"data: " + b"x" * 2**20 + b"\n"] * 9))
    with pytest.raises(errors.StreamError, match="exceeded the 8388608 byte limit"):
        _seqs(transport)
    assert len(server.layer.sent("GET", "/stream")) == 1


def test_server_that_stays_away_is_called_unreachable(transport: Transport, server: EdgeServer, pauses: Pauses) -> None:
    transport.clock = lambda: sum(pauses.lengths)
    server.layer.answer_instead("GET", "/stream", NO_ANSWER)
    with pytest.raises(errors.ServerUnreachableError):
        _seqs(transport)
    assert sum(pauses.lengths) >= GIVE_UP_S


def test_a_cut_is_told_to_whoever_asked(transport: Transport, server: EdgeServer) -> None:
    server.layer.answer_instead("GET", "/stream", events(event(1), cut=True), events(end(2)))
    told: list[str] = []
    assert len(list(stream_events(transport, RUN_ID, 0, on_cut=told.append))) == 2
    assert len(told) == 1


def test_ended_run_whose_events_were_all_seen_opens_no_stream(run: Run, server: EdgeServer) -> None:
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", ok(answers.run("SUCCEEDED", last_event=7)))
    assert list(run.events(after=7)) == []
    assert server.layer.sent("GET", "/stream") == []


def test_run_that_was_going_on_when_last_seen_is_followed_without_asking_first(run: Run, server: EdgeServer) -> None:
    server.layer.answer_instead("GET", "/stream", events(event(1), end(2)))
    assert [event.seq for event in run.events()] == [1, 2]
    assert server.layer.sent("GET", f"/runs/{RUN_ID}") == []


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 400), max_size=5), st.booleans())
def test_wherever_the_connection_is_cut_no_event_is_lost_or_doubled(
    transport: Transport, server: EdgeServer, lengths: list[int], proper: bool
) -> None:
    def from_event(first: int) -> bytes:
        return b"".join(event(seq) for seq in range(first, 6)) + end(6)

    # A server that replays from where the client says it is, and cuts each answer after some bytes.
    seen, script = 0, []
    for length in lengths:
        part = from_event(seen + 1)[:length]
        script.append(events(part, cut=not proper))
        complete = part.rpartition(b"\n\n")[0].count(b"event: run")
        seen += complete
        if seen >= 6:
            break
    server.layer.answer_instead("GET", "/stream", *script, events(from_event(min(seen, 5) + 1)))
    server.layer.requests.clear()
    assert _seqs(transport) == [1, 2, 3, 4, 5, 6]
    for number, request in enumerate(server.layer.sent("GET", "/stream")):
        assert number == 0 or request.headers["last-event-id"].startswith(f"{RUN_ID}=")
