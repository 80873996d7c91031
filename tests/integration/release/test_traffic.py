"""A client and a worker of the release before are understood: what they said is said to a server of today."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from drumline import Client
from release.recorder import Exchange
from release.replay import Replay, lost_fields, route_of
from release.unpacked import Release
from release.world import CONVERSATION
from support.api_process import ApiProcess

pytestmark = pytest.mark.both_databases

NOT_THERE: dict[str, str] = {}
"""Fields that are gone from an answer (`POST /runs .run.name`): why a client or worker of then can do without."""
OF_THE_STATE = (".why.", ".wait.")
"""What a run waits for: it is not at the same point again when it is asked for."""
NEWS = ("assigned", "cancelled", "fenced", "plans", "probes", "stacks")
"""Lists of a heartbeat's answer that the worker acts on: a later answer has to bring them too, if not at once."""


@pytest.fixture
def api(tmp_path: Path, request: pytest.FixtureRequest, database_kind: str) -> Iterator[ApiProcess]:
    """A server of today that knows nothing yet."""
    url = request.getfixturevalue("postgres_url") if database_kind == "postgresql" else ""
    (tmp_path / "today").mkdir()
    running = ApiProcess(tmp_path / "today", url, {"DRUMLINE_TIME_SCALE": "0.2"})
    running.start()
    yield running
    running.stop()


def test_what_client_and_worker_said_leads_to_the_same_runs(release: Release, api: ApiProcess) -> None:
    said = release.traffic(CONVERSATION)
    admin = said[0].asked["authorization"].removeprefix("Bearer ")
    with closing(Replay(api.url, {admin: api.token})) as replay:
        found = [difference for exchange in said for difference in _differences(exchange, replay)]
        outcomes = release.manifest["outcomes"]
        with Client(api.url, api.token) as client:
            ended = {run: client.get(replay.now(run)) for run in outcomes}

    assert sorted(set(found))[:40] == []
    assert {run: {"state": each.state, "result": each.details.result} for run, each in ended.items()} == outcomes
    assert {exchange.sender for exchange in said} == {"client", "alpha"}
    assert {route_of(exchange) for exchange in said} >= _WORKER


def test_a_field_that_a_worker_of_then_reads_and_that_is_gone_is_noticed(release: Release) -> None:
    answers = [each.json() for each in release.traffic(CONVERSATION) if route_of(each) == "POST /worker/register"]
    renamed = {("takeover" if name == "takeover_s" else name): value for name, value in answers[0].items()}

    assert [*lost_fields(answers[0], renamed, may_be_null=True)] == [(".takeover_s", "is gone")]
    assert [*lost_fields(answers[0], {**answers[0], "queue": 7})] == [(".queue", "is number, not str")]
    assert [*lost_fields(answers[0], {**answers[0], "more": 7})] == []


_WORKER = {
    "POST /worker/enroll",
    "POST /worker/register",
    "POST /worker/heartbeat",
    "POST /worker/members/{}/claim",
    "POST /worker/members/{}/events",
    "POST /worker/members/{}/stacks",
    "POST /worker/members/{}/end",
    "GET /worker/bundles/{}",
}


def _differences(exchange: Exchange, replay: Replay) -> Iterator[tuple[str, str]]:
    route = route_of(exchange)
    news = tuple(name for name in NEWS if (exchange.json() or {}).get(name)) if route.endswith("heartbeat") else ()
    answer = replay.ask_until(exchange, news)
    if answer.status_code != exchange.status:
        yield route, f"answers {answer.status_code}, not {exchange.status}: {answer.text[:200]}"
    elif exchange.json() is not None:
        for place, how in lost_fields(exchange.json(), answer.json(), may_be_null=True):
            if f"{route} {place}" not in NOT_THERE and not any(each in place for each in OF_THE_STATE):
                yield f"{route} {place}", how
