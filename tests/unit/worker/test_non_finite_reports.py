"""The first NaN of a variable is told once, under the step that the program names."""

import json
import socket
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from drumline.distribute.observe import StepRecord
from drumline.distribute.observe.non_finite import Reduced, Watched, WatchedCall, WatchedExchange, WatchedResult
from drumline_worker.host.messages import Decoder
from drumline_worker.runner.channel import Channel
from drumline_worker.runner.runner_telemetry import Telemetry

Watch = Callable[[int, float], WatchedCall]


def result(call: int, value: float) -> WatchedCall:
    """A small reduction outside of steps."""
    return WatchedResult(call, "loss", "mean", jnp.float32(value), jnp.float32(value), (0,))


def exchange(call: int, value: float) -> WatchedCall:
    """A sum that the host of a lock-step program did."""
    part = jnp.float32(value)
    return WatchedExchange(call, [Reduced(Watched("loss", "mean", ()), [part], part)])


@pytest.fixture(params=[result, exchange])
def watch(request: pytest.FixtureRequest) -> Watch:
    watch: Watch = request.param
    return watch


def events_of(watch: Watch, told: list[tuple[float, int | None]]) -> list[dict[str, Any]]:
    """Of calls with the value that each reduced, and the step that was named after it."""
    theirs, ours = socket.socketpair()
    with theirs, ours:
        telemetry = Telemetry(Channel(theirs))
        for call, (value, step) in enumerate(told):
            telemetry.watched(watch(call, value))
            telemetry.step(StepRecord(call, "spmd", 0, 1, None, None))
            if step is not None:
                telemetry.name_step(step)
        telemetry.close()
        theirs.shutdown(socket.SHUT_WR)
        raw = b"".join(iter(lambda: ours.recv(65_536), b""))
    messages = [json.loads(payload) for payload in Decoder().feed(raw)]
    return [message for message in messages if message["kind"] == "non_finite"]


def test_the_first_nan_has_the_step_that_was_named_for_its_call(watch: Watch) -> None:
    (event,) = events_of(watch, [(1.0, 10), (np.nan, 11), (np.nan, 12)])
    assert (event["name"], event["step"], event["call"]) == ("loss", 11, 1)
    assert event["replicas"] == [{"replica": 0, "nan_count": 1, "inf_count": 0}]


def test_what_is_found_before_its_step_is_named_waits_for_it(watch: Watch) -> None:
    (event,) = events_of(watch, [(1.0, None), (np.inf, None), (1.0, 2)])
    assert (event["step"], event["call"]) == (1, 1)
    assert event["replicas"] == [{"replica": 0, "nan_count": 0, "inf_count": 1}]


def test_finite_numbers_tell_nothing(watch: Watch) -> None:
    jax.block_until_ready(jnp.ones(1))
    assert events_of(watch, [(1.0, 0), (2.0, 1)]) == []
