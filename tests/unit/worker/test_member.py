"""What a registration lists, and claims that meet one."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drumline.contracts.ids import new_id
from drumline.contracts.problems import Problem
from drumline.contracts.worker_api import Claim
from drumline_worker.agent.api import RefusedError
from drumline_worker.agent.member import Member
from drumline_worker.agent.starting import ClaimLostError, claim
from drumline_worker.agent.workbench import Layout
from drumline_worker.clock import boot_id, now
from drumline_worker.rundir import RunDirectory, ShimIdentity
from support.member_plans import member_plan

SHIM = ShimIdentity(pid=7, start_ticks=1, started_at=now())


class Launched:
    """A member whose launch was ordered."""

    def __init__(self, root: Path) -> None:
        layout = Layout(root)
        layout.create()
        plan = member_plan(new_id("mem"), boot=boot_id())
        bench = cast(Any, SimpleNamespace(layout=layout))  # all that a member asks of it here
        self.directory: RunDirectory = layout.run_directory(plan.claimed.member)
        self.directory.create()
        self.member = Member(bench, plan.claimed.member, plan.claimed.fence, plan)


@pytest.fixture
def launched(tmp_path: Path) -> Launched:
    return Launched(tmp_path / "data")


def test_member_that_a_registration_does_not_list_as_it_has_no_process_gets_none_any_more(launched: Launched) -> None:
    """The server gives it up, and may have it run elsewhere at once."""
    assert launched.member.live() is None
    assert not launched.directory.begin(SHIM)


def test_member_with_a_process_is_listed(launched: Launched) -> None:
    assert launched.directory.begin(SHIM)
    live = launched.member.live()
    assert live is not None
    assert live.pid == SHIM.pid


def test_member_whose_run_directory_is_gone_is_not_listed(launched: Launched) -> None:
    launched.directory.remove()
    assert launched.member.live() is None


class Asked:
    """A session and a server: the first claim meets a registration, by which the server gives the member up."""

    def __init__(self) -> None:
        self.registrations = 1
        self.incarnation = new_id("inc")
        self.heard: list[str] = []

    async def until_settled(self) -> None:
        self.heard.append("settled")

    async def claim(self, member: str, _: Claim) -> str:
        self.heard.append("claimed")
        if self.registrations == 1:
            self.registrations = 2
            return member
        raise RefusedError(Problem(title="fenced", status=409, code="fenced", detail="it is over"))


def test_claim_that_met_a_registration_is_asked_again_when_that_is_settled() -> None:
    asked = Asked()
    bench = cast(Any, SimpleNamespace(session=asked, api=asked))  # all that a claim needs

    with pytest.raises(ClaimLostError):
        asyncio.run(claim(bench, new_id("mem"), 1))

    assert asked.heard == ["settled", "claimed"] * 2
