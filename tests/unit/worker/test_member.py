"""What a registration lists, and claims that meet one."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drumline.contracts.base import new_id
from drumline.contracts.events import MemberAck, MemberEnd
from drumline.contracts.problems import Problem
from drumline.contracts.reasons import EndReason
from drumline.contracts.worker_api import OLDEST_PROTOCOL, PROTOCOL_VERSION, Claim, Claimed
from drumline_worker.agent.agent_context import AgentContext, ClaimLostError, Layout, claim
from drumline_worker.agent.api import MemberKeys, RefusedError
from drumline_worker.agent.host_cache import CompiledEntries
from drumline_worker.agent.member import HostedMember
from drumline_worker.host.rundir import RunDirectory, ShimIdentity
from drumline_worker.host.system import boot_id, now
from support.start_orders import start_order

SHIM = ShimIdentity(pid=7, start_ticks=1, started_at=now())


class Launched:
    """A member whose launch was ordered."""

    def __init__(self, root: Path) -> None:
        layout = Layout(root)
        layout.create()
        order = start_order(new_id("mem"), boot=boot_id())
        context = cast(Any, SimpleNamespace(layout=layout))  # all that a member asks of it here
        self.directory: RunDirectory = layout.run_directory(order.claimed.member)
        self.directory.create()
        self.member = HostedMember(context, order.claimed.member, order.claimed.fence, order)


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


class Starting:
    """A member from its claim to its end, and what happens while the launcher is waited for and while it starts."""

    def __init__(self, root: Path) -> None:
        layout = Layout(root)
        layout.create()
        self.claimed = start_order(new_id("mem")).claimed
        self.while_waiting: Callable[[], object] = lambda: None
        self.while_starting: Callable[[], object] = lambda: None
        self.ends: list[MemberEnd] = []
        self.started: list[str] = []
        registration = SimpleNamespace(
            times_sent=1, incarnation=new_id("inc"), until_settled=self._at_once, alive_at=0.0,
            answer=SimpleNamespace(takeover_s=120.0, time_scale=1.0, protocol=PROTOCOL_VERSION),
        )  # fmt: skip
        ours = cast(Any, self)  # API, launcher and bundles: all that a start asks of them
        compiled = CompiledEntries(layout.compiled_entries)
        keys = MemberKeys(layout.keys)
        context = AgentContext(ours, cast(Any, registration), ours, ours, layout, root, ours, compiled, "here", keys)
        self.member = HostedMember(context, self.claimed.member, self.claimed.fence)

    async def _at_once(self) -> None:
        pass

    async def claim(self, _: str, __: Claim) -> Claimed:
        return self.claimed

    async def extract(self, _: str, __: Path) -> None:
        pass

    async def until_ready(self) -> None:
        self.while_waiting()

    async def start(self, member: str, _: Path) -> None:
        self.started.append(member)
        self.while_starting()

    def forget(self, _: str) -> None:
        pass

    async def end(self, _: str, end: MemberEnd) -> MemberAck:
        self.ends.append(end)
        return MemberAck(acked_seq=0, window=0, fence=self.claimed.fence, cancel=False)


def test_member_cancelled_while_the_launcher_is_waited_for_is_not_started(tmp_path: Path) -> None:
    starting = Starting(tmp_path / "data")
    starting.while_waiting = starting.member.cancel

    asyncio.run(starting.member.run())

    assert starting.started == []
    assert [end.reason for end in starting.ends] == [EndReason.CANCELLED]


def test_start_that_a_registration_revoked_is_told_as_failed(tmp_path: Path) -> None:
    """The launcher knows nothing of it: the shim that it forked ends at once."""
    starting = Starting(tmp_path / "data")
    starting.while_starting = starting.member.live

    asyncio.run(starting.member.run())

    assert starting.started == [starting.claimed.member]
    assert [(end.reason, end.devices_released) for end in starting.ends] == [(EndReason.NOT_STARTED, True)]


class Asked:
    """A registration and a server: the first claim meets a registration, by which the server gives the member up."""

    def __init__(self) -> None:
        self.times_sent = 1
        self.incarnation = new_id("inc")
        self.heard: list[str] = []
        self.answer = SimpleNamespace(protocol=OLDEST_PROTOCOL)  # which takes no key

    async def until_settled(self) -> None:
        self.heard.append("settled")

    async def claim(self, member: str, _: Claim) -> str:
        self.heard.append("claimed")
        if self.times_sent == 1:
            self.times_sent = 2
            return member
        raise RefusedError(Problem(title="fenced", status=409, code="fenced", detail="it is over"))


def test_claim_that_met_a_registration_is_asked_again_when_that_is_settled() -> None:
    asked = Asked()
    context = cast(Any, SimpleNamespace(registration=asked, api=asked))  # all that a claim needs

    with pytest.raises(ClaimLostError):
        asyncio.run(claim(context, new_id("mem"), 1))

    assert asked.heard == ["settled", "claimed"] * 2
