"""What the replicas of a run exchange in a step: which collectives, with how many bytes, and between whom.

Bytes are the payload: what one replica puts in, before what the algorithm of the collective sends for it. A ring
all-reduce of n replicas sends 2 (n - 1) / n of the payload from each of them, for example.
"""

from typing import Literal

from drumline.contracts.base import Reply


class Exchange(Reply):
    """One collective of a program, as the engine traced it."""

    name: str
    """The variable that the result is written into, where there is one; else the kind."""
    kind: str
    """`all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`, `permute` or `broadcast`."""
    op: str | None
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    """Payload each time."""
    times: int | None
    """How often it happens in a step; None where that depends on values."""
    bytes_per_step: int | None
    """Payload of a step; None where `times` is."""
    crosses_hosts: bool
    """Whether it joins replicas on several hosts."""


class ExchangeTotal(Reply):
    """All collectives of a program that are alike."""

    kind: str
    op: str | None
    crosses_hosts: bool
    operations: int
    """In the program."""
    times: int
    """In a step, together."""
    bytes_per_step: int
    """Payload of a step, together."""
    varying: int
    """How many of `operations` happen as often as values say: those are in neither `times` nor `bytes_per_step`."""


class ProgramExchanges(Reply):
    """A program that steps ran. What XLA adds where values are split over logical devices is not among it."""

    name: str
    """Of the step's function."""
    digest: str
    executor: str
    totals: tuple[ExchangeTotal, ...]
    """Of all its exchanges, the most bytes first."""
    exchanges: tuple[Exchange, ...]
    """In the order of the program."""
    more: int
    """Further exchanges, which only `totals` have."""


NotRecorded = Literal["no_step", "not_told", "jax"]


class Exchanges(Reply):
    """What the step programs of an attempt exchange, in the order in which they were first dispatched."""

    programs: tuple[ProgramExchanges, ...] = ()
    """At most 8, with 200 exchanges in all."""
    more_programs: int = 0
    not_recorded: NotRecorded | None = "not_told"
    """Why there is none. `no_step`: none was dispatched yet. `jax`: the program computes with JAX's own collectives, of
    which the engine is not told. `not_told`: no step was dispatched by `strategy.run`, or its worker does not tell."""
