"""Plans every program for one slice, in a process of its own, and writes what its compiler says as JSON.

python -m chips.one_slice v5e:4x4 LIBRARY OUT.json [--all]
"""

import argparse
import importlib
import json
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ("digits", "equinox_mlp", "flax_mnist_like", "one_step", "optax_mlp")
MANY = 40
"""Conformance cases that are planned for each slice; the rest for one only."""
SLICE_FOR_7B = "v5e:16x16"
MOST_MIB = 2_048
WHOLE_ONLY = ("v5e:16x16",)
"""Slices of which a program must take all devices."""
SLICES_WITH_SPLITS = ("v4:2x2x1", "v4:2x2x4", "v5e:4x4", "v6e:4x4", "v5p:2x2x1")


class Programs:
    """A plan's observer that keeps the compiled programs, of every strategy that it watches."""

    def __init__(self) -> None:
        self.compiled: list[Any] = []

    def step_program(self, record: Any) -> None:
        self.compiled.append(record.compilation)

    def input_divided(self, explanation: Any) -> None: ...

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *_: None


def figures(compiled: Any) -> dict[str, Any]:
    """What must be the same each time: everything but the time that compiling took."""
    memory = compiled.memory
    return {
        "fits": compiled.fits,
        "gross": compiled.is_gross,
        "argument": compiled.argument_bytes,
        "needed": compiled.needed,
        "available": compiled.available,
        "memory": None if memory is None else [memory.argument, memory.output, memory.temp, memory.alias, memory.code],
        "exchanges": [
            [one.kind, one.bytes, len(one.groups), len(one.groups[0]) if one.groups else 0]
            for one in compiled.collectives
        ],
        "unread": compiled.fits and bool(compiled.message),
        "cost": compiled.cost,
    }


class Planner:
    """Plans programs for one slice, one after the other."""

    def __init__(self, chips: Any) -> None:
        self.chips = chips
        self.found: dict[str, Any] = {}
        self.left_out: dict[str, str] = {}
        self.seconds: dict[str, float] = {}

    def plan(self, name: str, program: Callable[[Programs], None]) -> list[Any]:
        """What the compiler says of each step; a program without one is left out, with the reason."""
        from drumline.distribute.planning import run_on_shapes

        seen, began, why = Programs(), time.monotonic(), ""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                stop = run_on_shapes(lambda: program(seen), self.chips.devices, ROOT)
            why = "" if stop is None else stop.why
        except Exception as error:  # noqa: BLE001 - a case may be about an error
            why = f"{type(error).__name__}: {error}"[:200]
        self.seconds[name] = round(time.monotonic() - began, 3)
        if seen.compiled:
            self.found[name] = [figures(compiled) for compiled in seen.compiled]
        else:
            self.left_out[name] = why or "it runs no step of a strategy"
        return seen.compiled


class NoRun:
    """The least of a run that a program needs."""

    id = "plan"
    next_step = 0
    should_stop = False

    def __init__(self, strategy: Any) -> None:
        self.strategy = strategy
        self.parameters: dict[str, Any] = {}

    def log(self, **_: Any) -> None: ...
    def set_total_steps(self, total: int) -> None: ...
    def describe_examples(self, **_: Any) -> None: ...

    def checkpoint(self, state: Any, *, step: int) -> bool:
        return False

    def restore(self, state: Any = None) -> Any:
        return state


def watched(seen: Programs, strategy: Any) -> Any:
    if strategy is not None and hasattr(strategy, "observe"):
        strategy.observe(seen)
    return strategy


def plan_examples(planner: Planner) -> None:
    import drumline.distribute as dist

    sys.path.insert(0, str(ROOT / "examples"))
    for name in EXAMPLES:
        main = importlib.import_module(name).main

        def program(seen: Programs, main: Callable[..., Any] = main) -> None:
            main(NoRun(watched(seen, dist.MirroredStrategy())))

        planner.plan(f"examples/{name}", program)
        compiled = planner.found.get(f"examples/{name}")
        assert compiled, (name, planner.left_out.get(f"examples/{name}"))
        assert all(one["fits"] for one in compiled), name


def plan_cases(planner: Planner, *, every: bool) -> None:
    """Conformance cases of the fixed-shape categories, on as many of the slice's devices as they have replicas."""
    from conformance import programs, strategies
    from conformance.loader import load
    from conformance.registry import PROGRAMS

    programs.register_all()
    make = strategies.make_strategy
    cases = [case for case in load(ROOT / "tests/conformance/golden/golden_public.json") if case.program in PROGRAMS]
    planned = 0
    if str(planner.chips.known) in WHOLE_ONLY:
        planner.left_out["cases"] = "the compiler takes all devices of this slice or none, and cases have few replicas"
        return
    for case in cases:
        if planned >= MANY and not every:
            return
        if case.kind in ("pure", "multi_worker_simulated", "default"):
            planner.left_out[f"case/{case.id}"] = f"kind {case.kind}: no strategy of its own"
            continue
        if case.num_replicas > len(planner.chips.devices):
            planner.left_out[f"case/{case.id}"] = f"{case.num_replicas} replicas"
            continue

        def program(seen: Programs, case: Any = case) -> None:
            strategies.device_names = lambda count: list(planner.chips.devices[:count])
            strategies.make_strategy = lambda kind, replicas: watched(seen, make(kind, replicas))
            PROGRAMS[case.program](case)

        planned += bool(planner.plan(f"case/{case.id}", program))
    assert planned >= MANY, f"only {planned} conformance cases are one program: {planner.left_out}"


def check_out_of_memory(planner: Planner) -> None:
    """Weights that are too much alone, and activations that are too much beside them."""
    import jax
    import jax.numpy as jnp

    import drumline.distribute as dist

    def weights(seen: Programs) -> None:
        strategy = watched(seen, dist.MirroredStrategy())
        with strategy.scope():
            weight = dist.Variable(lambda: jnp.zeros((2**20, 2**17), jnp.float32), aggregation="mean")
        strategy.run(lambda: weight.assign_sub(weight.value))

    def activations(seen: Programs) -> None:
        strategy = watched(seen, dist.MirroredStrategy())

        def step(x: jax.Array) -> Any:
            return dist.all_reduce("sum", jnp.sort(jnp.sin(x[:, None] * x[None, :]), axis=0).sum())

        strategy.run(step, args=(jnp.ones((2**18,), jnp.float32),))

    (gross,) = planner.plan("too-large/weights", weights)
    assert (gross.fits, gross.is_gross) == (False, True)
    (large,) = planner.plan("too-large/activations", activations)
    assert (large.fits, large.is_gross) == (False, False), large
    assert large.needed is None or large.needed > large.available


def check_groups(planner: Planner) -> None:
    """The exchange over all replicas, in however many parts, is in one group of all devices."""
    count = len(planner.chips.devices)
    for name in EXAMPLES[:1]:
        (step, *_) = planner.found[f"examples/{name}"]
        groups = [one[2:] for one in step["exchanges"] if one[0] == "all-reduce"]
        assert groups, step
        assert groups == [[1, count]] * len(groups), step  # the compiler may have cut it into several


def check_split(planner: Planner) -> None:
    """A value in quarters takes a quarter of the bytes, and replicas exchange with the same part of each other."""
    from chips.programs import quarters

    sizes = {}
    for split in (True, False):

        def program(seen: Programs, split: bool = split) -> None:
            strategy, run = quarters(planner.chips.known.topology(), split=split)
            watched(seen, strategy)
            run()

        (made,) = planner.plan(f"split/{'quarters' if split else 'whole'}", program)
        sizes[split] = made.memory.output
        replicas = len(planner.chips.devices) // 4
        expected = {tuple(4 * replica + part for replica in range(replicas)) for part in range(4)}
        groups = [one.groups for one in made.collectives if one.kind == "all-reduce" and len(one.groups[0]) == replicas]
        assert replicas == 1 or any(set(found) <= expected for found in groups), made.collectives
    assert sizes[True] * 4 == sizes[False], sizes


def chips_of(name: str, library: Path) -> Any:
    """The chips, by the compiler that is a library, or of GPUs a folder of packages; JAX has not started yet."""
    from drumline.distribute.planning import Chips, add_gpu_compiler, compiler_environment

    if library.is_dir():
        add_gpu_compiler(library)
    else:
        os.environ.update(compiler_environment(library))
    import jax

    import drumline.distribute as dist

    jax.config.update("jax_platforms", "cpu")
    dist.set_cpu_devices(1)
    return Chips.of(name)


def main() -> int:
    """Writes the figures; an assertion that fails ends it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("slice")
    parser.add_argument("library", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--all", action="store_true", help="every conformance case and the large programs")
    options = parser.parse_args()
    planner = Planner(chips_of(options.slice, options.library))
    plan_examples(planner)
    check_groups(planner)
    check_out_of_memory(planner)
    if options.slice in SLICES_WITH_SPLITS:
        check_split(planner)
    plan_cases(planner, every=options.all)
    if options.all:
        plan_large(planner)
    if options.slice == SLICE_FOR_7B:
        plan_seven_billion(planner)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        assert peak <= MOST_MIB, f"planning seven billion weights took {peak} MiB"
    document = {
        "slice": options.slice,
        "compiler": planner.chips.compiler,
        "figures": planner.found,
        "left_out": planner.left_out,
        "seconds": planner.seconds,
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    options.out.write_text(json.dumps(document, indent=1, sort_keys=True))
    return 0


def plan_large(planner: Planner) -> None:
    """124 million weights compile and fit; seven billion, data parallel, are too much alone."""
    import drumline.distribute as dist
    from chips.programs import TRANSFORMER, transformer

    def large(seen: Programs) -> None:
        transformer(watched(seen, dist.MirroredStrategy()), **TRANSFORMER, batch_per_replica=8)

    (fits,) = planner.plan("transformer/124m", large)
    assert fits.fits, fits
    plan_seven_billion(planner)


def plan_seven_billion(planner: Planner) -> None:
    """Seven billion weights, data parallel, with Adam: too much for a device before anything is compiled."""
    import drumline.distribute as dist
    from chips.programs import SEVEN_BILLION, transformer

    def larger(seen: Programs) -> None:
        transformer(watched(seen, dist.MirroredStrategy()), **SEVEN_BILLION, batch_per_replica=1)

    (gross,) = planner.plan("transformer/7b", larger)
    assert gross.is_gross, gross


if __name__ == "__main__":
    sys.exit(main())
