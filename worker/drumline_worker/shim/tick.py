"""What the program's process tells of itself twice a second."""

from typing import Annotated, Literal

from pydantic import Field

from drumline.contracts.base import Contract


class Tick(Contract):
    """Where the program is; see MemberTick for the words."""

    kind: Literal["tick"] = "tick"
    activity: Literal["rendezvous", "own_code", "compiling", "in_step", "finishing"]
    advances: Annotated[int, Field(ge=0, lt=2**53)]
    collectives: Annotated[int, Field(ge=0, lt=2**53)] = 0
    waits: Annotated[int, Field(ge=0, lt=2**53)] = 0
    """How often it looked whether the other members of its gang have done their part of what they do together."""
    usual_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """95 of 100 times between steps are shorter; None before there are two steps."""

    @property
    def place(self) -> tuple[str, int, int, int]:
        """What changes when the program comes further, or waits for others on purpose."""
        return self.activity, self.advances, self.collectives, self.waits
