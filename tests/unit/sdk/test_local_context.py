"""The RunContext of a local run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from pydantic import JsonValue

import drumline.distribute as dist
from drumline.checkpoints.managers import LocalManager, RunCheckpoints
from drumline.contracts.spec import CheckpointSpec
from drumline.job import RunContext, RunStopping
from drumline.local.local_run import LocalRun


class _Recorded:
    """A Progress that remembers."""

    def __init__(self) -> None:
        self.updates: list[tuple[int, int | None, Mapping[str, float]]] = []
        self.lines: list[str] = []

    def update(
        self, step: int, total: int | None, rate: float | None = None, scalars: Mapping[str, float] | None = None
    ) -> None:
        self.updates.append((step, total, scalars or {}))

    def line(self, text: str) -> None:
        self.lines.append(text)

    def close(self) -> None:
        raise AssertionError


@pytest.fixture
def progress() -> _Recorded:
    return _Recorded()


@pytest.fixture
def run(progress: _Recorded, tmp_path: Path) -> LocalRun:
    return started(progress, tmp_path / "checkpoints", CheckpointSpec(keep=2), {"epochs": 2})


def started(
    progress: _Recorded, directory: Path | None, policy: CheckpointSpec, parameters: dict[str, JsonValue] | None = None
) -> LocalRun:
    """A process that runs a program."""
    strategy = dist.OneDeviceStrategy("CPU:0")
    manager = LocalManager(directory, policy, progress.line)
    return LocalRun(parameters or {}, strategy, progress, RunCheckpoints(manager, policy, strategy))


def test_it_is_a_run_context_with_its_parameters(run: LocalRun) -> None:
    assert isinstance(run, RunContext)
    assert (run.id, dict(run.parameters), run.should_stop) == ("local", {"epochs": 2}, False)
    with pytest.raises(TypeError):
        run.parameters["epochs"] = 3  # type: ignore[index]  # that it is read-only is the point


def test_last_log_is_shown_with_total_and_values(run: LocalRun, progress: _Recorded) -> None:
    run.set_total_steps(10)
    for step in range(10):
        run.log(step=step, loss=jnp.float32(step))
    run.show_last()
    assert progress.updates[-1] == (10, 10, {"loss": 9.0})


@pytest.mark.parametrize("value", [np.float32(1), jnp.int32(1), 1, True, np.ones(1), jnp.ones((1, 1))])
def test_anything_with_one_element_is_a_scalar(run: LocalRun, progress: _Recorded, value: Any) -> None:
    run.log(step=0, x=value)
    run.show_last()
    assert progress.updates == [(1, None, {"x": 1.0})]


@pytest.mark.parametrize(
    ("value", "said"), [(np.ones(3), r"shape \(3,\)"), ("0.5", "a str"), (None, "NoneType"), ([1], "a list")]
)
def test_anything_else_is_refused_by_name_and_shape(run: LocalRun, value: Any, said: str) -> None:
    with pytest.raises(TypeError, match=f"'loss' is .*{said}"):
        run.log(step=0, loss=value)


@pytest.mark.parametrize("value", [10**400, -(2**1024), jnp.complex64(1j), np.complex128(1)])
def test_a_number_that_no_float_holds_is_refused_when_it_is_logged(run: LocalRun, value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"'loss' (of \d+ bits; a float64 holds|is complex)"):
        run.log(step=0, loss=value)
    run.log(step=0, loss=2**1023)


@pytest.mark.parametrize("step", [np.int64(3), jnp.int32(3), np.array(3)])
def test_a_step_may_be_an_integer_of_any_library(run: LocalRun, progress: _Recorded, step: Any) -> None:
    run.log(step=step, x=1.0)
    run.set_total_steps(step)
    run.show_last()
    assert [type(number) for number in progress.updates[-1][:2]] == [int, int]


@pytest.mark.parametrize("step", [1.5, "3", None, np.float32(3), 2**60])
def test_any_other_step_is_refused_by_name(run: LocalRun, step: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"run\.log .*step"):
        run.log(step=step, x=1.0)


@pytest.mark.parametrize("name", ["", "x" * 201, "a\x00", "\ud800"])
def test_a_name_that_no_metric_can_have_is_refused(run: LocalRun, name: str) -> None:
    with pytest.raises(ValueError, match=r"run\.log"):
        run.log(step=0, **{name: 1.0})


def test_negative_steps_are_refused(run: LocalRun) -> None:
    with pytest.raises(ValueError, match="step -1"):
        run.log(step=-1)
    with pytest.raises(ValueError, match="-5"):
        run.set_total_steps(-5)


def test_after_a_stop_the_next_log_raises(run: LocalRun) -> None:
    run.stop_request.request()
    assert run.should_stop
    with pytest.raises(RunStopping):
        run.log(step=0)


def test_run_stopping_is_not_swallowed_by_except_exception() -> None:
    assert not issubclass(RunStopping, Exception)


def test_newest_checkpoint_comes_back_in_a_later_process(run: LocalRun, progress: _Recorded, tmp_path: Path) -> None:
    assert run.restore() is None
    for step in (1, 2, 3):
        run.checkpoint({"w": jnp.full(4, step), "step": step}, step=step)
    later = started(progress, tmp_path / "checkpoints", CheckpointSpec())
    restored = later.restore()
    assert restored is not None
    np.testing.assert_array_equal(restored["w"], np.full(4, 3))
    assert restored["step"] == 3


def test_checkpoint_of_the_same_step_replaces_the_older_one(run: LocalRun) -> None:
    run.checkpoint({"x": 1}, step=5)
    run.checkpoint({"x": 2}, step=5)
    assert run.restore() == {"x": 2}


def test_without_a_directory_checkpoints_last_as_long_as_the_process(progress: _Recorded) -> None:
    manager = LocalManager(None, CheckpointSpec(), progress.line)
    checkpoints = RunCheckpoints(manager, CheckpointSpec(), dist.OneDeviceStrategy("CPU:0"))
    assert checkpoints.restore() is None
    checkpoints.offer({"x": 1}, 0, stopping=False)
    found = manager.newest()
    assert found is not None
    assert checkpoints.restore() == {"x": 1}
    manager.close()
    assert not found.path.exists()


def test_a_save_is_due_when_so_many_steps_have_passed_since_the_last(progress: _Recorded, tmp_path: Path) -> None:
    policy = CheckpointSpec(every_steps=3)
    first = started(progress, tmp_path, policy)
    assert [step for step in range(8) if first.checkpoint({"x": step}, step=step)] == [2, 5]
    later = started(progress, tmp_path, policy)
    assert later.restore() == {"x": 5}
    assert later.next_step == 6
    assert [step for step in range(6, 12) if later.checkpoint({"x": step}, step=step)] == [8, 11]


def test_steps_of_checkpoints_do_not_go_back(run: LocalRun) -> None:
    run.checkpoint({"x": 1}, step=5)
    with pytest.raises(ValueError, match="got step 4 after step 5; steps of checkpoints grow"):
        run.checkpoint({"x": 2}, step=4)


def test_a_program_that_offers_its_state_each_step_saves_before_it_stops(progress: _Recorded, tmp_path: Path) -> None:
    run = started(progress, tmp_path, CheckpointSpec(every_steps=1000))
    for step in range(2):
        run.stop_request.step_began()
        run.checkpoint({"x": step}, step=step)
    run.stop_request.step_began()
    run.stop_request.request()
    run.log(step=2, loss=1.0)  # the state of step 2 is about to come
    assert run.should_stop
    assert run.checkpoint({"x": 2}, step=2)
    with pytest.raises(RunStopping):
        run.stop_request.step_began()
    assert started(progress, tmp_path, CheckpointSpec()).restore() == {"x": 2}


def test_a_program_that_does_not_come_to_its_state_is_stopped_all_the_same(run: LocalRun) -> None:
    for step in range(2):
        run.stop_request.step_began()
        run.checkpoint({"x": step}, step=step)
    run.stop_request.request()
    run.stop_request.step_began()
    with pytest.raises(RunStopping):
        run.stop_request.step_began()


def test_asked_twice_a_program_stops_without_saving(run: LocalRun) -> None:
    run.stop_request.step_began()
    run.checkpoint({"x": 0}, step=0)
    run.stop_request.request()
    run.stop_request.request()
    with pytest.raises(RunStopping):
        run.stop_request.step_began()
