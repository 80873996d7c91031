"""What a worker tells of its members in heartbeats comes with their keys, where the server knows of that."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drumline.contracts.base import from_micros, new_id
from drumline.contracts.worker_api import (
    KEYED_HEARTBEAT_PROTOCOL,
    OLDEST_PROTOCOL,
    Heartbeat,
    HeartbeatReply,
    MemberRefusal,
)
from drumline_worker.agent.agent_context import AgentContext, Layout
from drumline_worker.agent.api import MemberKeys
from drumline_worker.agent.host_cache import CompiledEntries
from drumline_worker.agent.member_registry import MemberRegistry
from support.start_orders import start_order


async def _until_cancelled() -> None:
    await asyncio.Event().wait()


class Host:
    """A registry with one member that an earlier agent started and that waits to be registered."""

    def __init__(self, root: Path, protocol: int) -> None:
        self.layout = Layout(root)
        self.layout.create()
        self.keys = MemberKeys(self.layout.keys)
        registration = SimpleNamespace(
            answer=SimpleNamespace(protocol=protocol), until_registered=_until_cancelled, incarnation=new_id("inc")
        )
        ours, compiled = cast(Any, None), CompiledEntries(self.layout.compiled_entries)
        context = AgentContext(
            ours, cast(Any, registration), ours, ours, self.layout, root, ours, compiled, "here", self.keys
        )
        self.registry = MemberRegistry(context)
        self.order = start_order(new_id("mem"))
        self.member = self.order.claimed.member

    def told(self) -> Any:
        """The member in the next heartbeat, as it is sent."""
        beat = Heartbeat(incarnation=new_id("inc"), sent_at=from_micros(0), members=self.registry.heartbeats())
        (told,) = beat.model_dump(mode="json")["members"]
        return told

    def hear(self, *replies: HeartbeatReply) -> Any:
        """Adopts the member, takes the replies, and returns what the next heartbeat tells."""

        async def live() -> Any:
            self.registry.adopt(self.order)
            await asyncio.sleep(0)  # its task begins, and waits to be registered
            for reply in replies:
                self.registry.apply_reply(reply)
            told = self.told()
            await self.registry.abandon()
            return told

        return asyncio.run(live())


def test_the_key_of_an_earlier_agent_comes_with_it(tmp_path: Path) -> None:
    host = Host(tmp_path, KEYED_HEARTBEAT_PROTOCOL)
    key = MemberKeys(host.layout.keys).make(host.member)

    assert host.hear()["key"] == key.get_secret_value()


@pytest.mark.parametrize("protocol", range(OLDEST_PROTOCOL, KEYED_HEARTBEAT_PROTOCOL))
def test_an_older_server_is_sent_no_key(tmp_path: Path, protocol: int) -> None:
    host = Host(tmp_path, protocol)
    host.keys.make(host.member)

    assert "key" not in host.hear()


def test_a_key_that_cannot_be_read_leaves_the_heartbeat_whole(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    host = Host(tmp_path, KEYED_HEARTBEAT_PROTOCOL)
    (host.layout.keys / host.member).mkdir()

    assert "key" not in host.hear()
    assert f"the key of {host.member} can't be read" in caplog.text


def test_a_refusal_that_each_answer_brings_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    host = Host(tmp_path, KEYED_HEARTBEAT_PROTOCOL)
    refused = tuple(
        MemberRefusal(member=member, code="fenced", detail=f"{member} was claimed with a key.")
        for member in (host.member, new_id("mem"))
    )
    host.hear(*[HeartbeatReply(refused=refused, server_time=from_micros(0))] * 3)

    assert caplog.text.count("was claimed with a key") == 1
