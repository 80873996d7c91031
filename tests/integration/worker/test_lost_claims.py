"""A claim whose answer was lost, of a member that is over when it is asked again."""

import asyncio
import json
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import SecretStr

from drumline.contracts.base import new_id
from drumline.contracts.events import MemberAck, MemberEnd
from drumline.contracts.problems import ProblemCode
from drumline.contracts.reasons import EndReason
from drumline.contracts.worker_api import PROTOCOL_VERSION
from drumline_worker.agent.agent_context import AgentContext, Layout
from drumline_worker.agent.api import Api, Backoff, MemberKeys
from drumline_worker.agent.member import HostedMember
from support.edge import EdgeServer
from support.layer import NO_ANSWER, Answer, ok, problem

FENCE = 3
OVER = problem(409, ProblemCode.FENCED, "Its attempt has expired.")
REPLACED = problem(409, ProblemCode.FENCED, "A newer worker.", context={"incarnation": "inc_a", "current": "inc_b"})


async def settled() -> None:
    """No registration is under way."""


class Stage:
    """A member that is assigned, its server, and the host's data directory."""

    def __init__(self, server: EdgeServer, root: Path) -> None:
        self.server = server
        self.member = new_id("mem")
        self.layout = Layout(root / "worker")
        self.layout.create()
        ack = MemberAck(acked_seq=0, window=1, cancel=False, fence=FENCE)
        server.layer.answer_instead("POST", self._path("end"), ok(ack))

    def claim(self, *answers: Answer) -> list[MemberEnd]:
        """Takes the member on while claims get these answers; what the worker told of the member's end."""
        self.server.layer.answer_instead("POST", self._path("claim"), *answers)
        asyncio.run(self._live())
        assert len(self.server.layer.sent("POST", self._path("claim"))) == len(answers)
        return [MemberEnd.model_validate_json(sent.body) for sent in self.server.layer.sent("POST", self._path("end"))]

    async def _live(self) -> None:
        keys = self.keys = MemberKeys(self.layout.keys)
        api = Api(self.server.url, trust_env=False, keys=keys)
        api.use_token(SecretStr(self.server.admin_token))
        registration = SimpleNamespace(
            incarnation=new_id("inc"),
            times_sent=1,
            register_again=lambda: None,
            until_settled=settled,
            answer=SimpleNamespace(protocol=PROTOCOL_VERSION),
        )
        nothing = cast(Any, None)  # nothing is launched here
        layout = self.layout
        context = AgentContext(
            api, cast(Any, registration), nothing, nothing, layout, layout.checkpoints, nothing, nothing, "", keys
        )
        try:
            await HostedMember(context, self.member, FENCE).run()
        finally:
            await api.close()

    def keys_of_claims(self) -> set[str]:
        """With which it was claimed so far."""
        return {json.loads(sent.body)["key"] for sent in self.server.layer.sent("POST", self._path("claim"))}

    def _path(self, what: str) -> str:
        return f"/worker/members/{self.member}/{what}"


@pytest.fixture
def stage(layered: EdgeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(Backoff, "next_s", lambda _: 0.01)
    return Stage(layered, tmp_path)


def test_worker_proves_that_nothing_runs_of_a_member_that_it_was_never_told_to_have(stage: Stage) -> None:
    (end,) = stage.claim(NO_ANSWER, OVER)
    assert (end.reason, end.fence, end.last_seq, end.devices_released) == (EndReason.FENCED, FENCE, 0, True)


def test_what_is_left_of_a_member_that_ran_here_is_killed_before_its_devices_are_called_free(stage: Stage) -> None:
    scratch = stage.layout.run_directory(stage.member).scratch
    scratch.mkdir(parents=True)
    with subprocess.Popen(["sleep", "600"], cwd=scratch, start_new_session=True) as left:
        try:
            (end,) = stage.claim(NO_ANSWER, OVER)
            assert left.poll() == -signal.SIGKILL
        finally:
            left.kill()
    assert end.devices_released


@pytest.mark.parametrize(
    "answers",
    [pytest.param([OVER], id="every claim was answered"), pytest.param([NO_ANSWER, REPLACED], id="worker replaced")],
)
def test_worker_tells_no_end_of_a_member_that_it_never_can_have_had(stage: Stage, answers: list[Answer]) -> None:
    assert stage.claim(*answers) == []


def test_a_member_whose_claim_no_answer_told_of_is_claimed_again_with_the_same_key(stage: Stage) -> None:
    assert stage.claim(*[NO_ANSWER] * 5) == []
    (key,) = stage.keys_of_claims()

    stage.keys.forget(stage.member)  # as of every member whose life here is over
    assert stage.keys.make(stage.member).get_secret_value() == key

    stage.keys.forget(stage.member)
    assert stage.keys.make(stage.member).get_secret_value() != key
