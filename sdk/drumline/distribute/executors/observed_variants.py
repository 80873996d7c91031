"""Variants of a compiled step that tell an observer more: what its all-reduces took in, and where NaN came from."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Sharding

from drumline.distribute.observe.non_finite import COUNTS, Watched
from drumline.distribute.observe.observation import Observation
from drumline.distribute.tracing.instrumentation import InstrumentedCollective, has_instrumented, instrument
from drumline.distribute.tracing.non_finite import has_watched, watch
from drumline.distribute.tracing.step import TracedStep


class Wanted(NamedTuple):
    """What a variant does: look for NaN and infinities, record all-reduces, also the large ones."""

    watches: bool
    records: bool
    with_large: bool


class WatchState:
    """All-reduces that variants of a step watch, and what the newest call put out, which the next one counts on."""

    def __init__(self, all_reduces: tuple[Watched, ...]) -> None:
        self.all_reduces = all_reduces
        self.numbers: jax.Array | None = None

    def start(self, num_replicas: int, sharding: Sharding) -> jax.Array:
        """What the first call counts on. Over several processes placed piece by piece, without a collective."""
        if self.numbers is None:
            zeros = np.zeros((num_replicas, 1 + COUNTS * len(self.all_reduces)), np.uint32)
            self.numbers = jax.make_array_from_callback(zeros.shape, sharding, lambda index: zeros[index])
        return self.numbers


class ObservedVariants:
    """What can be observed of a step. ``counts_looks``: its program is told what the call before put out."""

    def __init__(self, traced: TracedStep, num_replicas: int, *, counts_looks: bool) -> None:
        self._traced = traced
        self._num_replicas = num_replicas
        self._counts_looks = counts_looks
        jaxpr = traced.jaxpr.jaxpr
        self._has_small = num_replicas > 1 and has_instrumented(jaxpr, large=False)
        self._has_large = num_replicas > 1 and has_instrumented(jaxpr, large=True)
        self._has_watched = num_replicas > 1 and has_watched(traced)
        self._state: WatchState | None = None

    def send(self, observation: Observation, send: Callable[[Wanted | None], Any], steps: int) -> Any:
        """What ``send`` gives for the variant that a call of so many steps wants; some are timed, all of them over."""
        wanted, large = self._wanted(observation), observation.large
        if wanted is not None and wanted.with_large:
            large.note_program(self)
            return send(wanted)
        if large.program is not self:
            return send(wanted)
        if large.next_is_large:
            wanted = Wanted(self._has_watched and observation.watches, records=True, with_large=True)
        large.is_forced = is_large = large.next_is_large
        began_at = time.perf_counter()
        try:
            result = send(wanted)  # which waits for its devices
        finally:
            large.is_forced = False
        large.note_time(time.perf_counter() - began_at, steps, is_large=is_large)
        return result

    def _wanted(self, observation: Observation) -> Wanted | None:
        with_large = self._has_large and observation.wants_large
        records = observation.wants_in_step and (with_large or self._has_small)
        watches = self._has_watched and observation.watches
        return Wanted(watches, records, records and with_large) if watches or records else None

    def make(self, wanted: Wanted) -> tuple[TracedStep, list[InstrumentedCollective], WatchState | None]:
        """The step to compile, what it records, and what it watches: the same for all that watch."""
        traced, recorded, state = self._traced, list[InstrumentedCollective](), None
        if wanted.watches:
            traced, watched = watch(traced, self._num_replicas, counts_on=self._counts_looks)
            self._state = state = self._state or WatchState(watched)
        if wanted.records:
            traced, recorded = instrument(traced, self._num_replicas, with_large=wanted.with_large)
        return traced, recorded, state
