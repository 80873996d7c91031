"""A program run on shapes: nothing is computed, its steps are compiled, and it stops where it needs a number."""

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import drumline.distribute as dist
from drumline.distribute.observe import StepProgramRecord
from drumline.distribute.planning import Chips, Stop, compilation, run_on_shapes
from drumline.distribute.planning.compiled_text import find_collectives, replica_groups
from support.on_shapes import Programs, rows, square

HERE = Path(__file__).parent
FAR_TOO_LARGE = (400_000, 400_000, 400)


def plan(program: Callable[[dist.Strategy], Any]) -> tuple[Stop | None, list[StepProgramRecord]]:
    """Runs ``program`` on shapes, with two replicas."""
    devices, seen = jax.devices("cpu")[:2], Programs()

    def whole() -> None:
        strategy = dist.MirroredStrategy()
        strategy.observe(seen)
        program(strategy)

    return run_on_shapes(whole, devices, HERE), seen.records


def test_weights_of_any_size_cost_nothing_and_their_step_is_compiled() -> None:
    def program(strategy: dist.Strategy) -> None:
        with strategy.scope():
            weight = dist.Variable(lambda: jax.random.normal(jax.random.key(0), FAR_TOO_LARGE), aggregation="mean")

        def step(x: jax.Array) -> Any:
            weight.assign_sub(weight.value * 0.5)
            return square(x)

        for batch in strategy.distribute_dataset([rows(), rows()]):
            total = strategy.reduce("sum", strategy.run(step, args=(batch,)), axis=None)
        assert total.shape == ()

    stop, records = plan(program)
    assert stop is None
    (record,) = records
    assert record.compilation is not None
    compiled = record.compilation
    # each replica holds the weights, and its half of eight rows of three floats
    assert compiled.argument_bytes == 4 * (400_000 * 400_000 * 400 + 4 * 3)
    assert [one.kind for one in compiled.collectives] == ["all-reduce"]
    assert compiled.collectives[0].groups == ((0, 1),)
    assert (compiled.largest[0].shape, compiled.largest[1].name) == (FAR_TOO_LARGE, "argument [0]")


def test_real_arrays_are_back_after_a_plan() -> None:
    plan(lambda strategy: strategy.run(lambda: square(jnp.ones(2))))
    strategy = dist.MirroredStrategy(["cpu:0", "cpu:1"])
    assert float(strategy.reduce("sum", strategy.run(lambda: square(jnp.ones(2))), axis=None)) == 8.0
    assert "Tracer" not in str(jnp.ones(1))


def show_in_text(value: Any) -> None:
    sys.stdout.write(f"loss {value}")


def branch(value: Any) -> None:
    if value > 0:
        raise AssertionError("nobody knows this")


@pytest.mark.parametrize(
    ("use", "line"),
    [
        (float, "use(total)"),
        (lambda value: value.item(), "value.item()"),
        (np.asarray, "use(total)"),
        (show_in_text, "sys.stdout.write("),
        (branch, "if value > 0"),
    ],
)
def test_the_first_number_that_is_needed_stops_it_at_the_users_line(use: Callable[[Any], Any], line: str) -> None:
    def program(strategy: dist.Strategy) -> None:
        total = strategy.reduce("sum", strategy.run(lambda: square(jnp.ones(2))), axis=None)
        use(total)  # after strategy.run
        raise AssertionError("it had no number")

    stop, records = plan(program)
    assert stop is not None
    assert len(records) == 1
    assert stop.file == "test_run_on_shapes.py"
    assert line in stop.code
    assert "on shapes there is none" in stop.why


def test_a_step_that_calls_the_host_is_not_plannable() -> None:
    def step() -> Any:
        jax.debug.print("hello {}", jnp.ones(1))
        return square(jnp.ones(2))

    stop, records = plan(lambda strategy: strategy.run(step))
    assert stop is not None
    assert "calls the host while it runs" in stop.why
    assert records == []


def test_what_the_program_raises_itself_passes_through() -> None:
    def program(_: dist.Strategy) -> None:
        raise LookupError("of the program")

    with pytest.raises(LookupError, match="of the program"):
        plan(program)


def test_steps_return_what_they_do_elsewhere_in_shape_and_kind() -> None:
    def program(strategy: dist.Strategy) -> None:
        def step() -> Any:
            key = jax.random.key(0)
            return dist.mirrored({"a": jnp.ones((3, 2), jnp.bfloat16)}), jnp.arange(4), key

        state, numbers, keys = strategy.run(step)
        assert (state["a"].shape, state["a"].dtype) == ((3, 2), jnp.bfloat16)
        assert [one.shape for one in strategy.local_results(numbers)] == [(4,), (4,)]
        assert strategy.gather(numbers, axis=0).shape == (8,)
        assert jnp.issubdtype(keys.values[0].dtype, jax.dtypes.prng_key)

    assert plan(program)[0] is None


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("replica_groups={{0,1},{2,3}}, x", ((0, 1), (2, 3))),
        ("replica_groups=[2,2]<=[4], x", ((0, 1), (2, 3))),
        ("replica_groups=[2,2]<=[2,2]T(1,0), x", ((0, 2), (1, 3))),
        ("source_target_pairs={{0,1},{1,0}}, x", ((0, 1), (1, 0))),
        ("replica_groups=mesh['r'=2] {'r'}, x", ((0, 1),)),
        ("replica_groups=mesh['r'=2,'l'=2] {'r'}, x", ((0, 2), (1, 3))),
        ("replica_groups=mesh['r'=2,'l'=2] {'l'}, x", ((0, 1), (2, 3))),
        ("replica_groups=mesh['r'=2,'l'=2] {'r','l'}, x", ((0, 1, 2, 3),)),
        ("replica_groups={}, x", ()),
    ],
)
def test_replica_groups_are_read_in_each_of_their_forms(text: str, groups: tuple[tuple[int, ...], ...]) -> None:
    assert replica_groups(text) == groups


def test_collectives_are_read_with_the_bytes_of_their_results() -> None:
    text = """
  %all-reduce.1 = (f32[64,256]{1,0:T(8,128)}, bf16[10]{0}) all-reduce(%a, %b), replica_groups={{0,1}}, op_name="psum"
  %ag = (f32[4]{0}, f32[8]{0}) all-gather-start(%c), replica_groups=[1,2]<=[2], dimensions={0}
  %done = f32[8]{0} all-gather-done(%ag)
"""
    found = [(one.kind, one.bytes, one.name) for one in find_collectives(text)]
    assert found == [("all-reduce", 64 * 256 * 4 + 20, "psum"), ("all-gather", 32, "ag")]


def test_a_slice_that_is_none_and_a_missing_compiler_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TPU_LIBRARY_PATH", raising=False)
    with pytest.raises(dist.errors.InvalidValueError, match="there is no TPU 'v9'"):
        Chips.of("v9:2x2")
    with pytest.raises(dist.errors.NotPlannableError, match="no compiler"):
        Chips.of("v5e:4x4")


def test_to_wait_for_a_value_is_nothing_to_stop_at() -> None:
    def program(strategy: dist.Strategy) -> None:
        (batch,) = strategy.distribute_dataset([rows()])
        total = strategy.reduce("sum", strategy.run(square, args=(batch,)), axis=None)
        assert total.block_until_ready() is total
        assert jax.block_until_ready([total]) == [total]

    stop, records = plan(program)
    assert stop is None
    assert len(records) == 1


def test_a_value_that_is_logged_stops_the_program_without_a_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    def program(strategy: dist.Strategy) -> None:
        (batch,) = strategy.distribute_dataset([rows()])
        total = strategy.reduce("sum", strategy.run(square, args=(batch,)), axis=None)
        logging.getLogger("training").warning("loss %s", total)

    stop, records = plan(program)
    assert stop is not None
    assert (stop.why, stop.code) == (
        "a computed value is shown, and on shapes there is none",
        'logging.getLogger("training").warning("loss %s", total)',
    )
    assert len(records) == 1
    assert "Traceback" not in capfd.readouterr().err


def test_what_only_an_array_that_is_there_can_tell_stops_the_program() -> None:
    stop, _ = plan(lambda strategy: jnp.ones(3).copy_to_host_async())
    assert stop is not None
    assert "needs a number" in stop.why


def test_placeholders_are_as_before_once_the_program_ended() -> None:
    before = dict(vars(jax.core.Tracer))
    plan(lambda strategy: print(jnp.ones(3)))
    assert dict(vars(jax.core.Tracer)) == before


def test_a_type_error_of_the_programs_own_is_no_stop_whatever_it_says() -> None:
    def program(strategy: dist.Strategy) -> None:
        strategy.run(lambda: square(jnp.ones(2)))
        raise TypeError("no Tracer is wanted here")

    with pytest.raises(TypeError, match="no Tracer is wanted here"):
        plan(program)


def test_a_text_that_needs_the_number_is_a_stop_though_no_code_of_jax_is_called() -> None:
    stop, _ = plan(lambda strategy: "%d" % jnp.ones(()))  # noqa: UP031 - that is what is tested
    assert stop is not None
    assert "needs a number" in stop.why


@pytest.mark.parametrize(
    "make",
    [
        lambda: dist.Dataset.from_tensor_slices((jnp.ones((8, 3)), [jnp.zeros(()) for _ in range(8)])).batch(4),
        lambda: dist.Dataset.from_tensors((jnp.ones((4, 3)), jnp.zeros(4))).repeat(2),
    ],
)
def test_rows_of_a_jax_array_are_batches_of_their_shape(make: Callable[[], dist.Dataset]) -> None:
    def program(strategy: dist.Strategy) -> None:
        for x, y in strategy.distribute_dataset(make()):
            assert (x.values[0].shape, y.values[0].shape) == ((2, 3), (2,))
            strategy.run(square, args=(x,))

    stop, records = plan(program)
    assert stop is None
    assert [record.rows for record in records] == [(2, 2)]


def test_run_steps_is_one_program_of_all_its_steps() -> None:
    shapes = []

    def program(strategy: dist.Strategy) -> None:
        with strategy.scope():
            weight = dist.Variable(lambda: jnp.zeros((3,)), aggregation="mean")

        def step(x: jax.Array) -> Any:
            weight.assign_add(dist.all_reduce("mean", x.mean(0)))
            return dist.mirrored(weight.value.sum()), x * 2

        iterator = iter(strategy.distribute_dataset([rows() for _ in range(7)]))
        for _ in range(3):
            done, results = strategy.run_steps(step, iterator, 3)
            total, doubled = results
            shapes.append((done, total.shape, doubled.values[0].shape))

    stop, records = plan(program)
    assert stop is None
    assert shapes == [(3, (3,), (3, 4, 3)), (3, (3,), (3, 4, 3)), (1, (1,), (1, 4, 3))]
    assert [record.steps for record in records] == [3]
    (record,) = records
    assert record.compilation is not None
    # the weights, half of three batches of eight rows of three floats, and which of the steps are done
    assert record.compilation.argument_bytes == 4 * 3 + 3 * 4 * 3 * 4 + 2 * 4
    assert [one.kind for one in record.compilation.collectives] == ["all-reduce"]
    assert record.compilation.largest[0].name == "argument [0] of 3 steps"
    assert sum(one.bytes for one in record.compilation.largest) == record.compilation.argument_bytes


def test_run_steps_that_is_no_one_program_is_compiled_as_the_step_that_it_repeats() -> None:
    def program(strategy: dist.Strategy) -> None:
        def step(x: jax.Array) -> Any:
            return jax.random.key(0), square(x)  # no loop fills an array of keys

        done, _ = strategy.run_steps(step, iter(strategy.distribute_dataset([rows(), rows()])), 2)
        assert done == 2

    stop, records = plan(program)
    assert stop is None
    assert [(record.steps, record.compilation is not None) for record in records] == [(1, True)]


class _Unread:
    """A real lowered program whose compiled form this jaxlib could not read."""

    def __init__(self, lowered: Any) -> None:
        self._lowered = lowered
        self.compiled = 0

    def compile(self, **options: Any) -> Any:
        self.compiled += 1
        made = self._lowered.compile(**options)

        class Compiled:
            def as_text(self) -> str:
                raise jax.errors.JaxRuntimeError("INTERNAL: async-update instruction should have 1 operands")

            def __getattr__(self, name: str) -> Any:
                return getattr(made, name)

        return Compiled()


def test_a_program_that_jaxlib_cannot_read_is_told_by_its_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "_unreadable", set())
    mesh = jax.make_mesh((2,), ("r",), axis_types=(jax.sharding.AxisType.Auto,))
    step = jax.shard_map(lambda x: jax.lax.psum(x, "r"), mesh=mesh, in_specs=P("r"), out_specs=P())
    inputs = (jax.ShapeDtypeStruct((8, 3), jnp.float32, sharding=NamedSharding(mesh, P("r"))),)
    lowered = _Unread(jax.jit(step).lower(*inputs))

    class Call:
        @staticmethod
        def lower(*_: Any) -> Any:
            return lowered

    for tries in (2, 3):  # the next one is compiled once
        made = compilation.compile_for(jax.devices("cpu")[0], Call, inputs, ())
        assert [(one.kind, one.groups) for one in made.collectives] == [("all-reduce", ((0, 1),))]
        assert (made.message, lowered.compiled) == ("", tries)
