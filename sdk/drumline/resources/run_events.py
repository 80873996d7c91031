"""A run's events, live: resumed by id after every cut, ended only by the terminal event."""

from collections.abc import Callable, Iterator

import httpx2
from pydantic import ValidationError

from drumline import errors
from drumline._transport import Transport, backoff, describe
from drumline.contracts.api import RunEvent

SILENCE_S = 45.0
"""Three pings missed: the connection is dead, whatever TCP says."""
GIVE_UP_S = 120.0
"""So long without a single byte from the server, and it is called unreachable."""
MAX_EVENT_BYTES = 8 * 2**20
"""A server that never ends its event is not to fill our memory."""


CutCallback = Callable[[str], None]


def stream_events(
    transport: Transport, run_id: str, after: int, *, on_cut: CutCallback | None = None
) -> Iterator[RunEvent]:
    """Events of the run from `seq` `after + 1` on, each once and in order, until the terminal one.

    Raises ServerUnreachableError after two minutes without contact, APIError where the server refuses, StreamError for
    a stream that is none.
    """
    heard_at, failures = transport.clock(), 0
    while True:
        try:
            for event in _connection(transport, run_id, after):
                heard_at, failures = transport.clock(), 0
                if event is None or event.seq <= after:
                    continue
                after = event.seq
                yield event
                if is_terminal(event):
                    return
            cause = "it closes the stream at once"
        except (httpx2.TransportError, errors.RateLimitedError, errors.ServerError) as error:
            cause = describe(error) if isinstance(error, httpx2.TransportError) else str(error)
        if transport.clock() - heard_at > GIVE_UP_S:
            raise errors.ServerUnreachableError(transport.config.url, cause)
        if on_cut:
            on_cut(cause)
        transport.sleep(backoff(failures))
        failures += 1


def is_terminal(event: RunEvent) -> bool:
    """Whether the run ended with this event: nothing follows it."""
    return event.kind == "state" and event.body.get("terminal") is True


def _connection(transport: Transport, run_id: str, after: int) -> Iterator[RunEvent | None]:
    """The events of one connection; None for anything else that shows that the server is there."""
    params = {"topics": f"run:{run_id}", "from": f"{run_id}={after}"}
    headers = {"Accept": "text/event-stream", "Last-Event-ID": f"{run_id}={after}"}
    with transport.stream("/stream", params, headers, SILENCE_S) as response:
        kind = response.headers.get("Content-Type", "")
        if not kind.startswith("text/event-stream"):
            raise errors.StreamError(
                f"{response.request.url.host} sent {kind or 'nothing'} where events were asked for"
            )
        yield None
        for event in _events(response):
            if event.event == "resync":
                return
            yield _run_event(event) if event.event == "run" else None


def _events(response: httpx2.Response) -> Iterator[httpx2.ServerSentEvent]:
    """As the HTML standard says (9.2.6); comments (pings) are none. StreamError for one without end."""
    try:
        yield from httpx2.EventSource(response, max_event_size=MAX_EVENT_BYTES)
    except httpx2.SSEError as error:  # a TransportError, but the next try would not get further
        raise errors.StreamError(f"{response.request.url.host} sent no events that can be read: {error}") from error


def _run_event(event: httpx2.ServerSentEvent) -> RunEvent:
    try:
        return RunEvent.model_validate_json(event.data)
    except ValidationError as error:
        raise errors.StreamError(
            f"the stream sent an event that this client cannot read: {event.data[:200]}"
        ) from error
