"""What the telemetry thread cannot read is told as a gap; nothing that a program logs ends the thread."""

import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from drumline.distribute.observe import ReductionRecord, StepRecord
from drumline.job import RunStopping
from drumline_worker.host.messages import Decoder
from drumline_worker.runner import runner_telemetry as telemetry_module
from drumline_worker.runner.channel import Channel
from drumline_worker.runner.runner_telemetry import Telemetry

_SPEED = ["sys/steps_per_s", "sys/step_ms", "sys/input_wait_ms", "sys/dispatch_ms"]


class _Heard:
    """The shim's end of the socket."""

    def __init__(self) -> None:
        self.theirs, self._ours = socket.socketpair()
        self._decoder = Decoder()

    def messages(self) -> list[dict[str, Any]]:
        self.theirs.close()
        return self.messages_until_closed()

    def messages_until_closed(self) -> list[dict[str, Any]]:
        raw = b"".join(iter(lambda: self._ours.recv(65_536), b""))
        self._ours.close()
        return [json.loads(payload) for payload in self._decoder.feed(raw)]

    def messages_at_the_end_of(self, telemetry: Telemetry) -> list[dict[str, Any]]:
        """Reads while the telemetry is closed, which waits for it."""

        def end() -> None:
            telemetry.close()
            self.theirs.close()

        closing = threading.Thread(target=end)
        closing.start()
        messages = self.messages_until_closed()
        closing.join()
        return messages

    def messages_until(self, is_last: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """Those that come, up to the first that is the last."""
        self._ours.settimeout(30)
        messages: list[dict[str, Any]] = []
        while not messages or not is_last(messages[-1]):
            messages += [json.loads(payload) for payload in self._decoder.feed(self._ours.recv(65_536))]
        self._ours.settimeout(None)
        return messages

    def next_message(self) -> dict[str, Any]:
        self._ours.settimeout(30)
        (payload,) = self._decoder.feed(self._ours.recv(65_536))
        self._ours.settimeout(None)
        message: dict[str, Any] = json.loads(payload)
        return message


@pytest.fixture
def heard() -> _Heard:
    return _Heard()


def _reduction(deleted: bool, step: int = 1) -> ReductionRecord:
    value = jnp.ones(3)
    if deleted:
        value.delete()
    return ReductionRecord(
        name="loss", step=step, op="sum", axis=None, origin="host", inputs=(value,), counts=(1,), denominator=None,
        result=value,
    )  # fmt: skip


def test_a_reduction_whose_arrays_are_gone_is_a_gap_and_what_follows_is_sent(heard: _Heard) -> None:
    telemetry = Telemetry(Channel(heard.theirs))
    telemetry.reduction(_reduction(deleted=True))
    telemetry.reduction(_reduction(deleted=False))
    telemetry.point("loss", 1, 0.5)
    telemetry.close()
    kinds = {message["kind"]: message for message in heard.messages()}
    assert kinds["gap"] == {"kind": "gap", "what": "reduction", "count": 1}
    assert kinds["reduction"]["name"] == "loss"
    assert "loss" in kinds["metrics"]["names"]


@pytest.mark.parametrize("value", [10**400, jnp.complex64(1j)], ids=["too large", "complex"])
def test_a_value_that_is_no_float_is_a_gap_and_what_follows_is_sent(heard: _Heard, value: Any) -> None:
    telemetry = Telemetry(Channel(heard.theirs))
    telemetry.point("odd", 1, value)
    telemetry.point("loss", 1, 0.5)
    telemetry.close()
    kinds = {message["kind"]: message for message in heard.messages()}
    assert (kinds["gap"]["what"], kinds["gap"]["count"]) == ("metrics", 1)
    assert kinds["gap"]["detail"].startswith("'odd' of step 1 could not be read: ")
    assert kinds["metrics"]["names"][-1] != "odd"
    assert "loss" in kinds["metrics"]["names"]


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("make", [jnp.full, np.full])
def test_an_array_of_one_element_is_its_number_whatever_its_dimensions(
    heard: _Heard, make: Any, shape: tuple[int, ...]
) -> None:
    telemetry = Telemetry(Channel(heard.theirs))
    telemetry.point("loss", 1, make(shape, 0.5))
    telemetry.close()
    (told,) = [message for message in heard.messages() if message["kind"] == "metrics"]
    assert dict(zip(told["names"], told["values"], strict=True))["loss"] == 0.5


def test_no_reduction_is_lost_while_nothing_can_be_sent(heard: _Heard) -> None:
    steps = range(1_000)
    telemetry = Telemetry(Channel(heard.theirs))
    for step in steps:
        telemetry.reduction(_reduction(deleted=False, step=step))

    messages = heard.messages_at_the_end_of(telemetry)
    assert [message["step"] for message in messages if message["kind"] == "reduction"] == list(steps)
    assert "gap" not in {message["kind"] for message in messages}


def test_a_gap_stands_where_the_value_was_logged(heard: _Heard) -> None:
    telemetry = Telemetry(Channel(heard.theirs))
    for step, value in enumerate([0.5, 10**400, 10**400, 1.5, jnp.complex64(1j)]):
        telemetry.point("loss", step, value)
    telemetry.close()
    told = [
        message.get("values", message.get("count")) for message in heard.messages() if message["kind"] != "progress"
    ]
    assert told == [[0.5], 2, [1.5], 1]


def test_who_logs_faster_than_can_be_sent_waits_and_every_value_comes_in_order(
    heard: _Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry_module, "MAX_POINTS", 1_000)
    waited = threading.Event()
    telemetry = Telemetry(Channel(heard.theirs), waited.set)

    def log() -> None:
        for step in range(100_000):
            telemetry.point("loss", step, step / 3)
        telemetry.close()
        heard.theirs.close()

    logging = threading.Thread(target=log)
    logging.start()
    assert waited.wait(30)
    messages = heard.messages_until_closed()
    logging.join()
    values = [value for message in messages if message["kind"] == "metrics" for value in message["values"]]
    assert values == [step / 3 for step in range(100_000)]
    assert "gap" not in {message["kind"] for message in messages}


def test_who_waits_can_be_told_to_stop(heard: _Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry_module, "MAX_REDUCTIONS", 2)

    def stop() -> None:
        raise RunStopping("the run was asked to stop")

    telemetry = Telemetry(Channel(heard.theirs), stop)

    def report() -> None:
        for step in range(10_000):
            telemetry.reduction(_reduction(deleted=False, step=step))

    with pytest.raises(RunStopping):
        report()
    assert heard.messages_at_the_end_of(telemetry)


def test_the_first_step_is_told_at_once_and_the_pace_comes_with_the_end(heard: _Heard) -> None:
    telemetry = Telemetry(Channel(heard.theirs))
    telemetry.step(StepRecord(0, "spmd", 0, 2_000_000_000, None, None))
    first = heard.next_message()
    telemetry.close()
    logged = [message for message in heard.messages() if message["kind"] == "metrics"]
    assert (first["kind"], first["step"], first["steps_per_s"]) == ("progress", 1, None)
    assert [message["names"] for message in logged] == [_SPEED]
    assert [message["values"] for message in logged] == [[0.5, 2_000.0, 0.0, 2_000.0]]


def test_reductions_and_speed_are_told_by_the_steps_that_the_program_names(heard: _Heard) -> None:
    telemetry = Telemetry(Channel(heard.theirs))
    call = 0
    for step in range(3):
        for _ in range(4):
            telemetry.reduction(_reduction(deleted=False, step=call))
            at = 1_000_000_000 * call
            telemetry.step(StepRecord(call, "spmd", at, at + 1_000_000_000, None, None))
            call += 1
        telemetry.point("loss", step, 0.5)
        telemetry.name_step(step)
    telemetry.close()
    messages = heard.messages()
    told = [(message["step"], message["call"]) for message in messages if message["kind"] == "reduction"]
    progress = [message for message in messages if message["kind"] == "progress"]
    steps = {step for message in messages if message["kind"] == "metrics" for step in message["steps"]}
    speeds = {
        step
        for message in messages
        if message["kind"] == "metrics"
        for name, step in zip(message["names"], message["steps"], strict=True)
        if name == "sys/steps_per_s"
    }
    assert told == [(call // 4, call) for call in range(12)]
    assert progress[-1]["step"] == 3
    assert steps == {0, 1, 2}
    assert 0 not in speeds  # of the first step, which compiles


def test_a_program_that_stands_still_is_told_at_a_rate_of_zero_until_it_steps_again(heard: _Heard) -> None:
    telemetry = Telemetry(Channel(heard.theirs))
    began = time.monotonic_ns() - 20_000_000_000

    def step(number: int, at: int) -> None:
        telemetry.step(StepRecord(number, "spmd", at, at, None, 8))

    for number in range(1_000):
        step(number, began + 10_000_000 * number)  # the last of them some 10 s ago

    still = heard.messages_until(lambda message: message["kind"] == "metrics" and message["values"] == [0, 0])
    told = [message for message in still if message["kind"] == "progress"]
    step(1_000, time.monotonic_ns())
    telemetry.close()
    again = heard.messages()

    assert told[0]["steps_per_s"] == pytest.approx(100, rel=0.05)
    assert (told[-1]["step"], told[-1]["steps_per_s"], told[-1]["examples_per_s"]) == (1_000, 0, 0)
    assert sorted(still[-1]["names"]) == ["sys/examples_per_s", "sys/steps_per_s"]
    assert next(message["steps_per_s"] for message in again if message["kind"] == "progress") > 0
