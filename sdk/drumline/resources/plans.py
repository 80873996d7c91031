"""A plan, seen from outside: what a run would do, and the run made from it."""

from collections.abc import Callable
from urllib.parse import quote

from drumline._transport import Body, Transport
from drumline.contracts import api
from drumline.contracts.plans import ProbeState
from drumline.resources.runs import Run, submit_run
from drumline.resources.text import plan_text
from drumline.resources.waiting import Pauses, wait_until

PAUSES = Pauses(0.1, 1.0)
_PENDING = frozenset({ProbeState.WAITING, ProbeState.RUNNING})


class Plan:
    """One plan. `details` is what the server last said of it; printing it shows the placement and what was found."""

    def __init__(self, transport: Transport, details: api.Plan) -> None:
        self._transport = transport
        self._path = f"/plan/{quote(details.id, safe='')}"
        self.details = details

    @property
    def id(self) -> str:
        """Such as `pln_01J...`."""
        return self.details.id

    @property
    def pending(self) -> bool:
        """Whether a worker is still at the program's first steps."""
        return self.details.probe.state in _PENDING

    def refresh(self) -> "Plan":
        """Asks the server again; returns itself."""
        self.details = self._transport.get(self._path, api.Plan)
        return self

    def wait(self, timeout: float | None = None, on_look: Callable[["Plan"], None] | None = None) -> "Plan":
        """Returns itself once the probe is over, however it ended; `on_look` is called after each look at it.

        A probe has a deadline, so that this ends without a `timeout` too. Raises WaitTimeoutError after one.
        """

        def is_over(timeout_s: float) -> bool:
            self.details = self._transport.get_once(self._path, api.Plan, timeout_s)
            if on_look is not None:
                on_look(self)
            return not self.pending

        if self.pending:
            still = f"the probe of {self.id} is not over"
            wait_until(self._transport, is_over, timeout=timeout, pauses=PAUSES, still=lambda: still)
        return self

    def cancel(self) -> "Plan":
        """Ends the probe; what is known stays. Returns itself."""
        self.details = self._transport.post(f"{self._path}:cancel", api.Plan)
        return self

    def submit(self, *, anyway: bool = False, idempotency_key: str | None = None) -> Run:
        """Submits exactly what was planned; `run.planned` then shows the run beside this plan.

        Raises DoesNotFitError where the plan says that a step does not fit its chips, unless `anyway`.
        """
        request = self.details.request.model_copy(update={"plan": self.id, "anyway": anyway})
        return submit_run(self._transport, request, idempotency_key)

    def __str__(self) -> str:
        return plan_text(self.details)

    def __repr__(self) -> str:
        return f"<Plan {self.id}: probe {self.details.probe.state}>"


def make_plan(transport: Transport, body: Body, key: str) -> Plan:
    """Orders a plan of a program that the server has."""
    return Plan(transport, transport.post("/plan", api.Plan, body, key=key))
