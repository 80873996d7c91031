"""Compares copies that must be equal every so many steps (`record.divergence_every`), beside the program."""

import queue
import sys
import threading
from collections.abc import Mapping

import drumline.distribute as dist
from drumline.contracts.worker_api import Claimed, Rendezvous
from drumline.distribute.observe.divergence import CopyChecksums, CopyKind, OddCopy, checksum_copies
from drumline_worker.runner.rendezvous import name_member

_WAITING = 4
"""Checks that wait to be read; the step waits where devices are further behind."""
_MOST_NAMED = 20
"""Copies that are named; after so many the run is known to have diverged."""
_FINISH_S = 30.0


class DivergedError(Exception):
    """A copy of a variable or of an argument differs from the others, and the run is to stop for it."""


class DivergenceCheck:
    """Steps begin checks, a thread of its own reads them and names what is odd.

    The members of a gang tell each other their checksums, on that thread, so that each knows of all replicas.
    """

    def __init__(
        self, strategy: dist.Strategy, rendezvous: Rendezvous, every: int, ids: Mapping[int, str], *, stops: bool
    ) -> None:
        self._strategy = strategy
        self._rendezvous = rendezvous
        self._exchange = None if strategy.exchange is None else strategy.exchange.branch("copies")
        self._every = every
        self._ids = ids
        self._stops = stops
        self._begun: queue.Queue[tuple[int, CopyChecksums]] = queue.Queue(_WAITING)
        self._equal_until: dict[CopyKind, int] = {}
        self._named: set[tuple[CopyKind, str, int]] = set()
        self._error: DivergedError | None = None
        threading.Thread(target=self._read_forever, name="drumline-copies", daemon=True).start()

    def step_ended(self, step: int) -> None:
        """Call `step` of `strategy.run`, from 0, has written its variables: begins a check if one is due."""
        if (step + 1) % self._every == 0 and (sums := checksum_copies(self._strategy)) is not None:
            self._begun.put((step, sums))

    def wants_arguments(self, steps: range) -> bool:
        """Whether a check of what these steps are given is due: not of the first ones, as a program compares that."""
        return steps.start > 0 and (steps[-1] // self._every) > (steps.start - 1) // self._every

    def arguments_taken(self, steps: range, sums: CopyChecksums) -> None:
        """What these steps are given, which steps before them left."""
        self._begun.put((steps.start - 1, sums))

    def raise_if_stopping(self) -> None:
        """Raises DivergedError once a copy was found to differ and the run is to stop for it."""
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        """Waits until all checks are read. Raises as `raise_if_stopping`."""
        done = threading.Thread(target=self._begun.join, daemon=True)
        done.start()
        done.join(_FINISH_S)
        self.raise_if_stopping()

    def _read_forever(self) -> None:
        while True:
            step, sums = self._begun.get()
            try:
                self._judge(step, sums.kind, self._compare(step, sums))
            except Exception as error:  # noqa: BLE001 - a device that failed fails the step too, which tells it
                sys.stderr.write(f"drumline: the copies of step {step} could not be compared: {error}\n")
            finally:
                self._begun.task_done()

    def _compare(self, step: int, sums: CopyChecksums) -> list[OddCopy]:
        if self._exchange is None:
            return sums.odd_copies()
        told = self._exchange.tell(f"the copies of each {sums.kind} after step {step}", list(sums.read().items()))
        return sums.find_odd({replica: tuple(values) for each in told for replica, values in each})

    def _judge(self, step: int, kind: CopyKind, odd: list[OddCopy]) -> None:
        new = [copy for copy in odd if (kind, copy.name, copy.replica) not in self._named]
        for copy in new:
            if len(self._named) < _MOST_NAMED:
                self._named.add((kind, copy.name, copy.replica))
                message = self._describe(step, kind, copy)
                if self._rendezvous.rank == 0:  # all of a gang find the same
                    sys.stderr.write(f"drumline: {message}\n")
                if self._stops:
                    self._error = self._error or DivergedError(message)
        if not odd:
            self._equal_until[kind] = step

    def _describe(self, step: int, kind: CopyKind, copy: OddCopy) -> str:
        until = self._equal_until.get(kind)
        before = "never seen equal" if until is None else f"equal after step {until}"
        what = f"{'argument ' if kind == 'argument' else ''}{copy.name!r}"
        device = self._ids.get(copy.device.id, str(copy.device))
        member = "" if self._exchange is None else f" ({name_member(self._rendezvous, copy.device.process_index)})"
        return (
            f"replica {copy.replica} on {device}{member} has another value of {what} than most replicas, "
            f"first seen after step {step} ({before})"
        )


def open_check(strategy: dist.Strategy, claimed: Claimed, ids: Mapping[int, str]) -> DivergenceCheck | None:
    """The check that the job asks for; None where it asks for none."""
    every = claimed.record.divergence_every
    if every is None:
        return None
    return DivergenceCheck(strategy, claimed.rendezvous, every, ids, stops=claimed.record.on_divergence == "stop")
