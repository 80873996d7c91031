"""The enrolment token is read when it is needed and as soon as it is there."""

import asyncio
import os
from pathlib import Path

import pytest

from drumline_worker.agent.identity import MAX_TOKEN_BYTES, EmptyTokenError, Enrolment


def _token_of(fd: int) -> str:
    return asyncio.run(Enrolment(fd).token()).get_secret_value()


def test_a_token_that_is_written_later_is_waited_for() -> None:
    read_end, write_end = os.pipe()

    async def scenario() -> str:
        waiting = asyncio.create_task(Enrolment(read_end).token())
        await asyncio.sleep(0)
        assert not waiting.done()
        os.write(write_end, b"drm_enr_abc\n")
        return (await waiting).get_secret_value()

    assert asyncio.run(scenario()) == "drm_enr_abc"
    os.close(write_end)


def test_a_token_may_lie_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("drm_enr_abc\nmore\n")
    assert _token_of(os.open(file, os.O_RDONLY)) == "drm_enr_abc"


@pytest.mark.parametrize("written", [b"", b"\n", b"x" * (2 * MAX_TOKEN_BYTES)], ids=["nothing", "a blank", "too much"])
def test_what_is_no_token_is_refused(written: bytes) -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, written)
    os.close(write_end)
    with pytest.raises(EmptyTokenError):
        _token_of(read_end)
