"""One call of ``run``: flatten, find or build the compiled step, call it, tell the observer."""

from __future__ import annotations

import functools
import inspect
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from drumline.distribute.base.call_site import caller_stacklevel
from drumline.distribute.base.runtime import is_abstract, read_trace_settings
from drumline.distribute.combine.cross_device_ops import CrossDeviceOps
from drumline.distribute.contexts.step_trace import ReplicaNumberNeeded
from drumline.distribute.errors import (
    DivergingCopiesWarning,
    InvalidValueError,
    NotPlannableError,
    StateLostError,
    UnsupportedError,
)
from drumline.distribute.executors.donation import donated_leaves, refuse_reads
from drumline.distribute.executors.mpmd import MpmdStep
from drumline.distribute.executors.observed import call_step
from drumline.distribute.executors.pmap import PmapStep
from drumline.distribute.executors.repeated import EachStep, RepeatedSpmdStep
from drumline.distribute.executors.same_program import require_same_program
from drumline.distribute.executors.spmd import SpmdStep
from drumline.distribute.observe import DispatchedProgram
from drumline.distribute.observe.observation import Observation
from drumline.distribute.planning.planned_ragged import PlannedRagged, plan_ragged
from drumline.distribute.planning.planned_step import Planned, PlannedStep, PlannedSteps
from drumline.distribute.running.program_cache import BuiltStep, FunctionState, StepCache
from drumline.distribute.running.run_options import RunOptions
from drumline.distribute.running.staleness import refuse_stale
from drumline.distribute.tracing.arguments import StepArguments, flatten_arguments, repeat_arguments
from drumline.distribute.tracing.known_trees import KnownTrees
from drumline.distribute.tracing.program_record import describe_program, describe_step
from drumline.distribute.tracing.row_outputs import find_row_outputs
from drumline.distribute.tracing.row_weights import refuse_unminded_padding
from drumline.distribute.tracing.step import StepTracer, TracedStep
from drumline.distribute.tracing.uniformity import mark_uniform
from drumline.distribute.variables.owner import VariableOwner

#: What JAX raises when Python needs the number behind a tracer.
_NEEDS_CONCRETE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.TracerArrayConversionError,
)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call without a compiled step. ``roots``: the function, and what its arguments hold of the program."""

    called: Callable[..., Any]
    fn: Callable[..., Any]
    roots: Sequence[Any]
    arguments: StepArguments
    options: RunOptions
    signature: Any


@dataclass(frozen=True, slots=True)
class _Program:
    """What tracing a step gave: one trace per replica, or ``is_shared``, one that serves all."""

    traces: list[TracedStep]
    is_shared: bool


class StepRunner:
    """Runs steps for one strategy. ``executor``: the one asked for; ``ops`` do the sums of lock-step programs."""

    def __init__(self, owner: VariableOwner, executor: str, ops: CrossDeviceOps, observation: Observation) -> None:
        self._owner = owner
        self._executor = executor
        self._ops = ops
        self._observation = observation
        self._cache = StepCache()
        self._known = KnownTrees()
        self.step = 0
        self.last_executor: str | None = None
        self.full_rooms: set[int] = set()  # numbers of steps asked for, and taken, by one call

    def run(self, fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], options: RunOptions) -> Any:
        """The results of ``fn`` on every replica; the variables that it wrote are written."""
        called = fn
        if options.static_argnames:
            fn, args, kwargs = _bind_static(fn, args, kwargs, options.static_argnames)
        # Held from reading the variables until they are written: another thread's step would donate the same buffers.
        with self._owner.lock:
            arguments = flatten_arguments(self._owner, args, kwargs, self._known)
            if self._observation.is_observed():
                return self._run_observed(called, fn, arguments, options)
            try:
                return self._call(self._find_or_build(called, fn, arguments, options).step, arguments)
            finally:
                self.step += 1

    def run_repeated(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        options: RunOptions,
        *,
        batch: Any,
        count: int,
        room: int,
    ) -> list[Any]:
        """The results of ``fn(*args, *batch, **kwargs)`` for each of ``count`` batches, in parts of several steps.

        ``batch``: leaves [replicas, room, ...] of the batches; those after ``count`` are not looked at.
        """
        called = fn
        given: Sequence[Any] = (*args, *(batch if isinstance(batch, tuple) else (batch,)))
        if options.static_argnames:
            fn, given, kwargs = _bind_static(fn, given, kwargs, options.static_argnames)
        results: list[Any] = []
        with self._owner.lock:
            flat = flatten_arguments(self._owner, given, kwargs, self._known)
            self._observation.begin_steps(range(self.step, self.step + count))
            first = 0
            while first < count:
                part, done = self._run_part(called, fn, repeat_arguments(flat, batch, room, first, count), options)
                results.append(part)
                first += done
        return results

    def _run_part(
        self, called: Callable[..., Any], fn: Callable[..., Any], arguments: StepArguments, options: RunOptions
    ) -> tuple[Any, int]:
        """The results of as many of the repeated steps as one compiled step does, and how many these are."""
        assert arguments.repeated is not None
        steps = range(self.step, self.step + arguments.repeated.stop - arguments.repeated.first)
        dispatched_at = time.monotonic_ns()
        try:
            built = self._find_or_build(called, fn, arguments, options)
            step, steps = built.step, self._steps_of(built, arguments)
            self._observation.dispatch_steps(step.name, steps)
            return self._call(step, arguments), len(steps)
        finally:
            executor = self.last_executor or self._executor
            self._observation.end_steps(steps, executor, dispatched_at, arguments.rows)
            self.step += len(steps)

    def note_results(self, shape: Any, results: Any, steps: range) -> None:
        """Joined ``results`` of ``steps``: which entry is of which. ``shape``: as those of one step."""
        tree: Any = jax.tree.structure(shape)
        for leaf in tree.flatten_up_to(results):
            for one, which in zip(leaf, steps, strict=True) if isinstance(leaf, tuple) else [(leaf, steps)]:
                self._observation.note_results(one, which)
        self._observation.finish_steps(steps)

    def _call(self, step: Any, arguments: StepArguments) -> Any:
        try:
            results = call_step(step, arguments, self._observation, self._owner)
        except Exception as error:
            self._raise_if_state_is_lost(error)
            raise
        for name, arrays in step.list_donated(arguments):
            refuse_reads(arrays, name, self.step)
        return results

    def _run_observed(
        self, called: Callable[..., Any], fn: Callable[..., Any], arguments: StepArguments, options: RunOptions
    ) -> Any:
        observation = self._observation
        observation.begin_step(self.step)
        dispatched_at = time.monotonic_ns()
        try:
            step = self._find_or_build(called, fn, arguments, options).step
            observation.dispatch_step(step.name, is_ragged=arguments.is_ragged)
            return self._call(step, arguments)
        finally:
            observation.end_step(self.step, self.last_executor or self._executor, dispatched_at, arguments.rows)
            self.step += 1

    def _find_or_build(
        self, called: Callable[..., Any], fn: Callable[..., Any], arguments: StepArguments, options: RunOptions
    ) -> BuiltStep:
        signature = (arguments.signature, options.donate, read_trace_settings(jax.config))
        roots = (fn, *arguments.objects)
        state = self._cache.find(called, roots)
        built = None if state is None else state.steps.get(signature)
        if state is None or built is None:
            state = state or self._cache.begin(called, roots)
            built = self._build(state, _Call(called, fn, roots, arguments, options, signature))
        else:
            self._report_program(built, called, arguments)
            if options.check_stale:
                again = self._trace(fn, arguments.of_one_step(), state.made).traces
                refuse_stale(built.traces, again, state.captures.opaque_parts())
                self._cache.record_trace(fn, state, roots)
        if arguments.is_padded:
            assert arguments.rows is not None
            name = getattr(called, "__name__", repr(called))
            refuse_unminded_padding(self._owner, arguments.rows, name, minds=built.traces[0].minds_row_weights)
            if not built.knows_rows:
                built.knows_rows = True
                built.traces[0].row_outputs |= find_row_outputs(
                    built.traces[0], arguments, lambda longer: self._trace(fn, longer, state.made).traces[0]
                )
        built.last_use = next(self._cache.uses)
        self.last_executor = built.step.name
        return built

    def _report_program(self, built: BuiltStep, called: Callable[..., Any], arguments: StepArguments) -> None:
        if self._observation.is_followed:
            self._observation.report_program(self._describe(built, called, arguments), self._steps_of(built, arguments))

    def _steps_of(self, built: BuiltStep, arguments: StepArguments) -> range:
        """The steps that one call of it does."""
        if arguments.repeated is None or (isinstance(built.step, EachStep) and built.step.makes):
            return range(self.step, self.step + 1)
        return range(self.step, self.step + arguments.repeated.stop - arguments.repeated.first)

    def _describe(self, built: BuiltStep, called: Callable[..., Any], arguments: StepArguments) -> DispatchedProgram:
        if built.description is None:
            name = getattr(called, "__qualname__", None) or type(called).__name__
            homes = [own[0].process_index for own in self._owner.replica_devices]
            room = 1 if arguments.repeated is None else arguments.repeated.room
            built.description = describe_program(built.step, built.traces, name, homes, room)
        return built.description

    def _build(self, state: FunctionState, call: _Call) -> BuiltStep:
        if self._owner.exchange is None:
            return self._build_here(state, call)
        with self._owner.exchange.telling_failure(f"step {self.step}"):
            return self._build_here(state, call)

    def _build_here(self, state: FunctionState, call: _Call) -> BuiltStep:
        # Before the trace, so that the warning comes also where the trace fails.
        self._cache.count_trace(call.fn, state, call.signature)
        program = self._trace(call.fn, call.arguments.of_one_step(), state.made)
        self._cache.record_trace(call.fn, state, call.roots)
        step = self._compile(program, call.fn, call.arguments, call.options)
        built = BuiltStep(step, program.traces)
        self._report_program(built, call.called, call.arguments)  # first: who has it already comes to no exchange
        if self._owner.exchange is not None:  # before anything is sent: a collective of other programs would hang
            text = step.text(call.arguments)
            require_same_program(self._owner, text, f"step {self.step}", call.arguments, program.traces)
        created = program.traces[0].created
        if created:
            state.made = list(created)
        if self._observation.planner is not None:
            replicas = self._owner.num_replicas_in_sync
            self._observation.planner.step_program(describe_step(step, call.arguments, self.step, replicas))
        # A program that makes its variables runs once: the next trace takes those that it made as inputs.
        if all(variable.is_initialized for variable in created):
            self._cache.keep(state, call.signature, built, call.arguments.objects)
        return built

    def _trace(self, fn: Callable[..., Any], arguments: StepArguments, made_before: list[Any]) -> _Program:
        tracer = StepTracer(self._owner, fn, arguments, made_before)
        # What is tried first has the replica id as a tracer. Where Python needs the number, or another number that
        # JAX doesn't know, each replica is traced on its own.
        try:
            if self._needs_program_per_replica(arguments):
                return _Program(tracer.trace_replicas(is_shared=True), is_shared=False)
            return _Program([tracer.trace_once()], is_shared=True)
        except (ReplicaNumberNeeded, *_NEEDS_CONCRETE) as error:
            if self._executor not in ("auto", "mpmd"):
                # No other executor runs replicas of several devices, or those of several processes.
                other = (
                    ""
                    if self._owner.logical_axes or self._owner.has_foreign_devices
                    else (", or executor='auto', which traces each replica where it asks for its number")
                )
                raise InvalidValueError(
                    f"executor={self._executor!r} traces a step once for all replicas, and its Python needs a "
                    f"number that is not known then; use jax.lax.cond{other}"
                ) from error
        return _Program(tracer.trace_replicas(is_shared=False), is_shared=False)

    def _compile(self, program: _Program, fn: Callable[..., Any], arguments: StepArguments, options: RunOptions) -> Any:
        if arguments.repeated is not None:
            makes = not all(variable.is_initialized for variable in program.traces[0].created)
            is_one = program.is_shared and self._executor != "pmap" and not makes
            if not is_one or not RepeatedSpmdStep.can_repeat(program.traces[0]):
                each = self._compile(program, fn, arguments.of_one_step(), options)
                return EachStep(each, self._observation, makes=makes)
        if is_abstract():
            return self._plan(program, fn, arguments, options)
        if not program.is_shared:
            if arguments.row_weights is not None:
                raise InvalidValueError(
                    "last_batch='pad' needs one program for all replicas, and this step is one for each: it asks for "
                    "its replica's number, or executor='mpmd' was asked for; use last_batch='exact'"
                )
            donated_leaves(fn, arguments.tree, options.donated_names)  # refuses names that are none
            return MpmdStep(self._owner, self._ops, self._observation, program.traces, arguments)
        (traced,) = program.traces
        self._mark_uniform(traced, arguments)
        spmd = SpmdStep if arguments.repeated is None else RepeatedSpmdStep
        executor = PmapStep if self._executor == "pmap" else spmd
        given = donated_leaves(fn, arguments.tree, options.donated_names)
        return executor(
            self._owner, self._observation, traced, arguments, donate=options.donate is not False, given=given
        )

    def _plan(
        self, program: _Program, fn: Callable[..., Any], arguments: StepArguments, options: RunOptions
    ) -> Planned | PlannedRagged:
        if not program.is_shared and not arguments.is_ragged:
            raise NotPlannableError(
                f"step {self.step} has a program per replica (MPMD), and only one program for all can be compiled for "
                "devices that are not there: its Python needs a number that only a replica knows, or executor='mpmd'"
            )
        if not program.is_shared:
            made, alone = list(program.traces[0].created), replace(options, donate=False)

            def plan_even(even: StepArguments) -> Any:
                return self._plan(self._trace(fn, even, made), fn, even, alone)

            return plan_ragged(self._owner, program.traces, arguments, plan_even)
        (traced,) = program.traces
        self._mark_uniform(traced, arguments)
        given = donated_leaves(fn, arguments.tree, options.donated_names)
        planned = PlannedStep if arguments.repeated is None else PlannedSteps
        return planned(
            self._owner, self._observation, traced, arguments, donate=options.donate is not False, given=given
        )

    def _needs_program_per_replica(self, arguments: StepArguments) -> bool:
        if not arguments.is_ragged:
            return self._executor == "mpmd"
        if self._executor in ("spmd", "pmap"):
            if self._owner.has_foreign_devices:
                raise UnsupportedError(
                    f"over several processes every replica needs the same shapes, and arrays; got "
                    f"{_describe_ragged(arguments)}; use drop_remainder=True on the dataset"
                )
            other = "" if self._owner.logical_axes else "use executor='auto', or "
            raise InvalidValueError(
                f"executor={self._executor!r} needs the same shapes on every replica, got "
                f"{_describe_ragged(arguments)}; {other}drop_remainder=True on the dataset"
            )
        return True

    def _mark_uniform(self, traced: TracedStep, arguments: StepArguments) -> None:
        constants = [True] * len(traced.constants)
        leaves = [arguments.kinds[i] == "plain" for i in traced.leaf_indices]
        variables = [variable.storage != "stacked" for variable in traced.read]
        unmarked = traced.unmarked = traced.jaxpr
        replicas = self._owner.num_replicas_in_sync
        traced.jaxpr, outputs = mark_uniform(unmarked, [*constants, *variables, *leaves], num_replicas=replicas)
        traced.uniform_outputs = outputs[: traced.num_outputs]
        self._warn_of_unproven_marks(traced)
        if any(variable.is_uniform for variable in traced.written):
            # Copies that were equal until now: does this step make them differ?
            variables = [variable.storage != "stacked" or variable.is_uniform for variable in traced.read]
            _, outputs = mark_uniform(unmarked, [*constants, *variables, *leaves], num_replicas=replicas)
            for variable, is_uniform in zip(traced.written, outputs[traced.num_outputs :], strict=True):
                if not is_uniform:
                    variable.note_divergence()

    def _warn_of_unproven_marks(self, traced: TracedStep) -> None:
        unproven = [index for index in sorted(traced.mirrored_outputs) if not traced.uniform_outputs[index]]
        if unproven and self._owner.num_replicas_in_sync > 1:
            warnings.warn(
                f"{len(unproven)} of {len(traced.mirrored_outputs)} outputs marked by dist.mirrored may differ between "
                "replicas, and replica 0's value is taken: all_reduce what they are made from",
                DivergingCopiesWarning,
                stacklevel=caller_stacklevel(),
            )

    def _raise_if_state_is_lost(self, error: Exception) -> None:
        """StateLostError where the step that failed with ``error`` had taken buffers of variables with it."""
        lost = [variable for variable in self._owner.own_variables() if variable.is_lost]
        if lost:
            checkpoint = self._owner.last_checkpoint
            raise StateLostError(
                f"the step failed after its variables were donated; lost: {', '.join(v.name for v in lost)}. "
                f"Last checkpoint: {checkpoint or 'none'}. Restore from it, or run with RunOptions(donate=False)",
                checkpoint,
            ) from error


def _bind_static(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], names: tuple[str, ...]
) -> tuple[Callable[..., Any], Sequence[Any], dict[str, Any]]:
    bound = inspect.signature(fn).bind(*args, **kwargs)
    missing = [name for name in names if name not in bound.arguments]
    if missing:
        raise InvalidValueError(f"static_argnames {missing} were not passed to {getattr(fn, '__name__', fn)}")
    static = {name: bound.arguments.pop(name) for name in names}
    return functools.partial(fn, **static), (), dict(bound.arguments)


def _describe_ragged(arguments: StepArguments) -> str:
    return ", ".join(
        repr(leaf) for leaf, kind in zip(arguments.leaves, arguments.kinds, strict=True) if kind == "ragged"
    )
