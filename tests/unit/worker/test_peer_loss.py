"""Which errors under a program say that another member of its gang is gone."""

import jax
import pytest

from drumline_worker.runner.devices import is_peer_loss

CLOSED = "Gloo AllGather failed: [external/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [::1]:13748"


def _raised_from(cause: BaseException) -> BaseException:
    try:
        raise RuntimeError("step 7 failed") from cause
    except RuntimeError as error:
        return error


@pytest.mark.parametrize(
    "error",
    [
        jax.errors.JaxRuntimeError(f"INTERNAL: {CLOSED}"),
        ValueError(f"UNKNOWN: {CLOSED}"),  # as a jax.Array raises it where it is read
        _raised_from(ValueError(f"UNKNOWN: {CLOSED}")),
    ],
)
def test_a_failed_collective_is_one(error: BaseException) -> None:
    assert is_peer_loss(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("connection refused: no such server"),
        ConnectionResetError("Connection reset by peer"),
        jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory"),
        _raised_from(ValueError("odd")),
    ],
)
def test_a_program_s_own_error_is_none(error: BaseException) -> None:
    assert not is_peer_loss(error)
