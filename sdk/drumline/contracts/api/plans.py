"""Plans as the API shows them, and a plan beside what its run recorded."""

from typing import Literal

from drumline.contracts.api.access import PrincipalRef
from drumline.contracts.api.runs import Why
from drumline.contracts.api.telemetry import PlacedDevice
from drumline.contracts.base import PlanId, Reply, RunId, Timestamp
from drumline.contracts.chips import SliceName
from drumline.contracts.plans import PlanWarning, ProbedProgram, ProbeFault, ProbeState
from drumline.contracts.spec import RunSubmit


class Probe(Reply):
    """How far the probe is, on which host, and why it found nothing if it did."""

    state: ProbeState
    host_name: str | None = None
    deadline: Timestamp | None = None
    fault: ProbeFault | None = None
    message: str = ""
    output: str = ""
    """The end of what the program printed, where it failed."""


class Plan(Reply):
    """What a run would do: where it would sit at once, the rest when the probe is ready. Nothing is held for it."""

    id: PlanId
    created_at: Timestamp
    created_by: PrincipalRef = PrincipalRef()
    request: RunSubmit
    starts_now: bool
    """Whether it would have been placed at once. If not, `devices` are those that it would get on an idle fleet."""
    why: Why | None
    """Why it would wait."""
    devices: tuple[PlacedDevice, ...]
    """By replica and logical device; empty where no host could ever hold it."""
    warnings: tuple[PlanWarning, ...]
    probe: Probe
    on: SliceName | None = None
    """The slice that the plan speaks of; `None`: of the devices where it would be placed, simulated by CPU devices."""
    program: ProbedProgram | None
    """Devices are numbered as in `devices`."""


class PlanDifference(Reply):
    """One thing that was planned, or that the run recorded without a plan."""

    about: Literal["replica", "variable", "batch", "collective"]
    name: str
    verdict: Literal["same", "different", "not_planned", "missing", "not_recorded"]
    """`missing`: planned, and the run recorded none; `not_recorded`: the run's sampling does not cover it (yet)."""
    planned: str = ""
    actual: str = ""


class PlanComparison(Reply):
    """A run beside the plan that it was submitted from."""

    run: RunId
    plan: Plan
    rows: tuple[PlanDifference, ...]
    differences: int
    """Rows that are different, missing or not planned."""
