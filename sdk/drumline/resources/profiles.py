"""Traced calls of a run's `strategy.run`: what each device did, and the files that jax.profiler wrote."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from drumline._transport import Params, Transport
from drumline.contracts import api
from drumline.errors import RunError

UNMEASURED = {
    "off": "not measured: no step is traced; submit with record.profile_every",
    "platform": "not measured: the platform tells no operations of devices",
    "long": "not measured: the step takes longer than is traced",
    "unreadable": "not measured: the trace could not be read",
    "pending": "not measured yet: no step was traced so far",
    "busy": "not measured: the program traces itself with jax.profiler",
}
"""Why the times of a traced step, or of the newest one, are not known."""
FILES_LEFT_OUT = {
    "large": "not kept: larger than 512 KiB",
    "full": "not kept: the process traced 16 MiB before",
    "unreadable": "not kept: jax.profiler wrote none",
}


class StepProfile:
    """A traced step: `details` is what the server said of it; `lanes()` has each device's operations.

    `save(path)` writes the files of jax.profiler as a zip. Unpacked, `tensorboard --logdir DIR` (with xprof) opens the
    directory, and https://ui.perfetto.dev the `.trace.json.gz` in it.
    """

    def __init__(self, transport: Transport, path: str, details: api.Profile) -> None:
        self._transport = transport
        self._path = f"{path}/{details.id}"
        self.details = details

    @property
    def step(self) -> int:
        """The program's step."""
        return self.details.step

    @property
    def rank(self) -> int:
        """Of the process that was traced."""
        return self.details.rank

    @property
    def file_name(self) -> str:
        """A name for the file of `save`."""
        return f"{self.details.run}-step-{self.step}-rank-{self.rank}.zip"

    def lanes(self) -> api.ProfileLanes:
        """The operations of each device, and what its time went into."""
        return self._transport.get(self._path, api.ProfileLanes)

    def save(self, path: str | Path) -> None:
        """Writes the files of jax.profiler as a zip. RunError where they are not kept."""
        if (reason := self.details.file_left_out) is not None:
            raise RunError(self.details.run, f"the files of the trace of step {self.step} are {FILES_LEFT_OUT[reason]}")
        Path(path).write_bytes(self._transport.send("GET", f"{self._path}/file").content)

    def __repr__(self) -> str:
        return f"<profile of step {self.step}, rank {self.rank}>"


class StepProfiles(Iterator[StepProfile]):
    """Traced steps of a run, the newest first: each `next` gives one."""

    def __init__(self, transport: Transport, path: str, attempt: str | None) -> None:
        self._transport = transport
        self._path = path
        self._attempt = attempt
        self._rest = self._iterate()

    def __next__(self) -> StepProfile:
        return next(self._rest)

    @property
    def lost(self) -> tuple[api.Gap, ...]:
        """Traces that began and are not kept, newest first, such as of a program that was killed within the step.

        `detail` of each says at which step it began, and why it is lost.
        """
        return self._first.lost

    @cached_property
    def _first(self) -> api.Profiles:
        return self._get(None)

    def _get(self, cursor: str | None) -> api.Profiles:
        return self._transport.get(self._path, api.Profiles, {"attempt": self._attempt, "cursor": cursor})

    def _iterate(self) -> Iterator[StepProfile]:
        page = self._first
        while True:
            for details in page.items:
                yield StepProfile(self._transport, self._path, details)
            if page.next is None:
                return
            page = self._get(page.next)


Joined = TypeVar("Joined", api.Arrivals, api.ReplicaTimes)


def join_pages(transport: Transport, path: str, kind: type[Joined], rows: str, params: Params | None = None) -> Joined:
    """All pages of an answer as one: of those that follow only the `rows` are new."""
    found: Joined = transport.get(path, kind, params)
    while found.next is not None:
        page: Joined = transport.get(path, kind, {**(params or {}), "cursor": found.next})
        found = page.model_copy(update={rows: (*getattr(found, rows), *getattr(page, rows))})
    return found
