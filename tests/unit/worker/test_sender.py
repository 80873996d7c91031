"""The sender of telemetry: what the spool lost is said, what is acknowledged is not sent again, members take turns."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from drumline.contracts.events import MAX_CUT_BYTES, MemberAck
from drumline_worker.agent.telemetry_sender import MAX_BATCH_BYTES, TelemetrySender
from drumline_worker.host.spool import SpoolReader, SpoolWriter


class _Api:
    """A server that takes consecutive events of each member."""

    def __init__(self, acked: int = 0) -> None:
        self._first = acked
        self.acked: dict[str, int] = {}
        self.events: dict[str, list[dict[str, Any]]] = {}
        self.turns: list[str] = []
        self.largest = 0
        self.under_way = self.most_under_way = 0

    async def send_events(self, member: str, head: str, events: list[bytes]) -> MemberAck:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(0.001)
        self.under_way -= 1
        self.turns.append(member)
        self.largest = max(self.largest, sum(map(len, events)))
        known = self.acked.setdefault(member, self._first)
        for event in map(json.loads, events):
            if event["seq"] == self.acked[member] + 1:
                self.acked[member] += 1
                self.events.setdefault(member, []).append(event)
        assert json.loads(f"{{{head}}}")["first_seq"] >= 1
        assert self.acked[member] >= known
        return MemberAck(acked_seq=self.acked[member], window=1_000, cancel=False, fence=1)


def _sender(api: _Api, member: str, directory: Path, turns: asyncio.Semaphore) -> TelemetrySender:
    reader = SpoolReader(directory)
    context = cast(Any, SimpleNamespace(api=api, registration=SimpleNamespace(incarnation="inc_1"), sending=turns))
    return TelemetrySender(context, member, 1, reader, on_ack=lambda _: None, on_fenced=lambda: None)


def _spool(directory: Path, count: int, size: int = 100) -> SpoolWriter:
    directory.mkdir(exist_ok=True)
    writer = SpoolWriter(directory, segment_bytes=1_000 if size < 1_000 else 1024**2)
    for seq in range(1, count + 1):
        writer.append(json.dumps({"seq": seq, "kind": "log", "text": "x" * size}).encode())
    return writer


def _send(api: _Api, members: dict[str, tuple[Path, int]]) -> None:
    async def send() -> None:
        turns = asyncio.Semaphore(2)
        senders = {member: _sender(api, member, path, turns) for member, (path, _) in members.items()}
        for member, (_, last) in members.items():
            senders[member].finish(last)
        await asyncio.gather(*(sender.run() for sender in senders.values()))

    asyncio.run(send())


def test_a_new_agent_sends_from_what_the_spool_has_on(tmp_path: Path) -> None:
    _spool(tmp_path, 100).trim(60)
    api = _Api(acked=60)
    _send(api, {"mem": (tmp_path, 100)})
    assert [event["seq"] for event in api.events["mem"]] == list(range(61, 101))
    assert {event["kind"] for event in api.events["mem"]} == {"log"}


def test_what_neither_the_server_nor_the_spool_has_is_a_gap(tmp_path: Path) -> None:
    _spool(tmp_path, 100).trim(60)
    first = min(int(path.stem) for path in tmp_path.glob("*.seg"))
    api = _Api(acked=10)
    _send(api, {"mem": (tmp_path, 100)})
    kinds = {event["seq"]: event["kind"] for event in api.events["mem"]}
    assert list(kinds) == list(range(11, 101))
    assert {seq for seq, kind in kinds.items() if kind == "gap"} == set(range(11, first))


def test_the_flood_of_one_member_does_not_hold_up_another_and_batches_stay_small(tmp_path: Path) -> None:
    _spool(tmp_path / "flood", 400, MAX_CUT_BYTES - 100)
    _spool(tmp_path / "calm", 3)
    api = _Api()
    _send(api, {"flood": (tmp_path / "flood", 400), "calm": (tmp_path / "calm", 3)})
    assert api.turns.index("calm") <= 2
    assert api.turns.count("flood") >= 25
    assert len(api.events["flood"]) == 400
    assert api.largest <= MAX_BATCH_BYTES < 1024**2
    assert api.most_under_way <= 2
