"""`GET /stream`: server-sent events that resume where the reader left off."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends, Header, Query
from fastapi.sse import EventSourceResponse, ServerSentEvent

from drumline_server.base.settings import Clock, Settings
from drumline_server.http.dependencies import AppDep, ReaderDep, api_router
from drumline_server.live.hub import Hub
from drumline_server.live.streams import Subscriber, format_positions, parse_positions, parse_topics
from drumline_server.services import identity
from drumline_server.storage.database import Database

router = api_router(tags=["stream"])

RETRY_MS = 1_000
RECHECK_S = 30.0
"""How long a stream may outlive a credential that expires, or that another server revokes."""


async def subscribe(
    principal: ReaderDep,
    app: AppDep,
    topics: Annotated[str, Query(max_length=4_000, description="`run:<id>,runs,fleet`")],
    begin: Annotated[str, Query(alias="from", max_length=4_000, description="`<run id>=<event number>,...`")] = "",
    last_event_id: Annotated[str, Header(max_length=4_000)] = "",
) -> AsyncIterator[Subscriber]:
    """A place in the hub for as long as the stream is open; refusals come before the stream begins."""
    positions = parse_positions(last_event_id, "Last-Event-ID") or parse_positions(begin, "from")
    subscriber = await app.live.join(principal, parse_topics(topics), positions)
    try:
        yield subscriber
    finally:
        app.live.leave(subscriber)


@router.get("/stream", response_class=EventSourceResponse)
async def stream(subscriber: Annotated[Subscriber, Depends(subscribe)], app: AppDep) -> AsyncIterator[ServerSentEvent]:
    """Events of runs (`event: run`) and hints that a list changed (`event: hint`).

    `id:` names the newest event of each run of the stream: give it back as `Last-Event-ID` to continue without a gap.
    After `event: resync` fetch again what is shown. A stream of runs alone ends after the last event of the last.
    """
    yield ServerSentEvent(comment="drumline", id=format_positions(subscriber.positions) or None, retry=RETRY_MS)
    checked_at = asyncio.get_running_loop().time()
    while not subscriber.closing:
        sent = False
        async for message in _messages(app.live, subscriber):
            sent = True
            yield message
            if message.event == "resync":
                return
        if subscriber.is_over:
            return
        if subscriber.is_doubted or asyncio.get_running_loop().time() - checked_at > RECHECK_S:
            subscriber.is_doubted = False
            checked_at = asyncio.get_running_loop().time()
            if not await _is_still_welcome(app.database, subscriber, app.settings, app.clock):
                return
        if not sent:
            await subscriber.wait(RECHECK_S)


async def _messages(hub: Hub, subscriber: Subscriber) -> AsyncIterator[ServerSentEvent]:
    """What can be sent now."""
    for run_id in subscriber.topics.runs:
        if run_id in subscriber.finished:
            continue
        owed = await hub.read_unsent(subscriber, run_id)
        if owed is None:
            yield ServerSentEvent(event="resync", data={"run": run_id})
            return
        for event in owed:
            subscriber.positions[run_id] = event.seq
            if event.terminal:
                subscriber.finished.add(run_id)
            yield ServerSentEvent(event="run", raw_data=event.json, id=format_positions(subscriber.positions))
    for hint in subscriber.take_hints():
        yield ServerSentEvent(event="hint", data=hint)


async def _is_still_welcome(database: Database, subscriber: Subscriber, settings: Settings, clock: Clock) -> bool:
    principal, idle_s, now = subscriber.principal, settings.session_idle_s, clock.now()
    return await database.read(lambda session: identity.is_still_good(session, principal, idle_s=idle_s, now=now))
