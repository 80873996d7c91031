"""Adversities of the network that aim: a trap on a machine's line lets some requests arrive late, or never.

Blind loss and delay meet these orders of events too, but once in many thousand histories.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.host import Host
    from sim.network import Answer, Request

Deliver = Callable[[], None]


class LateRequests:
    """The last requests of an agent, from the first to `path` on, come when it is dead and has a successor.

    A late registration comes when the successor has claimed something, anything else when it has registered.
    """

    def __init__(self, host: "Host", path: str, delay_s: float) -> None:
        self._host = host
        self._path = path
        self._delay_s = delay_s
        self._held: list[Deliver] = []
        self._is_over = False

    def takes(self, request: "Request", deliver: Deliver) -> bool:
        """Whether the request does not arrive now."""
        if self._is_over or not (self._held or request.path.endswith(self._path)):
            return False
        if not self._held:
            timeline = self._host.world.timeline
            timeline.note(self._host.name, f"{request.path} is under way for long")
            timeline.after(timeline.rng.uniform(0.0, 0.5), self._kill)
        self._held.append(deliver)
        return True

    def answered(self, request: "Request", answer: "Answer | None") -> None:
        """The successor has done what was waited for: what its predecessor sent arrives."""
        awaited = "/claim" if self._path == "/register" else "/register"
        if self._is_over and request.path.endswith(awaited) and answer is not None and answer.status == 200:
            self._host.line.trap = None
            for deliver in self._held:
                self._host.world.timeline.after(self._delay_s, deliver)

    def _kill(self) -> None:
        self._is_over = True
        self._host.kill_agent(restart_s=0.5)


class LostTelemetry:
    """No telemetry arrives until the next end of a member is told; then the machine loses its disk."""

    def __init__(self, host: "Host") -> None:
        self._host = host

    def takes(self, request: "Request", deliver: Deliver) -> bool:
        """Whether the request does not arrive now."""
        del deliver
        return request.path.endswith("/events")

    def answered(self, request: "Request", answer: "Answer | None") -> None:
        """The server knows that a member has ended."""
        if request.path.endswith("/end") and answer is not None and answer.status == 200 and self._host.line.trap:
            self._host.line.trap = None
            self._host.lose_disk()
