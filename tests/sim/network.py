"""The network between hosts, users and servers: late, lossy, doubling, cut in one direction or both."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sim.process import Process
from sim.timeline import Timeline

if TYPE_CHECKING:
    from sim.server import Server
    from sim.traps import LateRequests, LostTelemetry

TIMEOUT_S = 15.0
"""As the worker's HTTP client has it."""


Reply = Callable[["Answer | None"], None]
"""Where an answer goes; None for a connection that broke."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request: `host_id` of a worker's token, None for the user's."""

    path: str
    body: bytes
    host_id: str | None = None
    key: str = ""
    member_key: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


class UnansweredError(Exception):
    """Lost, refused, reset or too late: the sender cannot tell whether it was done."""


@dataclass(slots=True)
class Weather:
    """How bad the network is now; probabilities per message."""

    loss: float = 0.0
    duplicates: float = 0.0
    delays: float = 0.0


@dataclass(eq=False, slots=True)
class Line:
    """One machine's connection to the servers, each direction by itself."""

    name: str
    requests_cut: bool = False
    answers_cut: bool = False
    trap: "LateRequests | LostTelemetry | None" = None

    def keeps(self, request: Request, deliver: Callable[[], None]) -> bool:
        """Whether the request does not arrive now."""
        return self.requests_cut or (self.trap is not None and self.trap.takes(request, deliver))

    def note_answer(self, request: Request, answer: Answer | None) -> None:
        """A server has answered."""
        if self.trap is not None:
            self.trap.answered(request, answer)


@dataclass(eq=False)
class Network:
    """Carries requests to any of the servers, as a balancer would."""

    timeline: Timeline
    servers: "list[Server]" = field(default_factory=list)
    weather: Weather = field(default_factory=Weather)

    async def send(self, process: Process, line: Line, request: Request) -> Answer:
        """The answer of some server. Raises UnansweredError."""
        future: asyncio.Future[Answer | None] = process.loop.create_future()

        def settle(answer: Answer | None) -> None:
            if not line.answers_cut and not self.timeline.chance(self.weather.loss):
                process.post(lambda: None if future.done() else future.set_result(answer))

        def reply(answer: Answer | None) -> None:
            line.note_answer(request, answer)
            self.timeline.after(self._latency(), lambda: settle(answer))

        def deliver() -> None:
            self._serve(request, reply)

        def arrive() -> None:
            if not line.keeps(request, deliver):
                deliver()

        if not self.timeline.chance(self.weather.loss):
            self.timeline.after(self._latency(), arrive)
        if self.timeline.chance(self.weather.duplicates):
            self.timeline.after(self._latency() * 3, arrive)
        return await _answered(future, request)

    def _serve(self, request: Request, reply: Reply) -> None:
        up = [server for server in self.servers if server.is_up] or self.servers
        self.timeline.rng.choice(up).receive(request, reply)

    def _latency(self) -> float:
        rng = self.timeline.rng
        if self.timeline.chance(self.weather.delays):
            return rng.uniform(0.5, 40.0)
        return rng.uniform(0.001, 0.05)


async def _answered(future: "asyncio.Future[Answer | None]", request: Request) -> Answer:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            answer = await future
    except TimeoutError:
        raise UnansweredError(f"no answer to {request.path} in {TIMEOUT_S:g} s") from None
    if answer is None:
        raise UnansweredError(f"{request.path}: the connection broke")
    return answer
