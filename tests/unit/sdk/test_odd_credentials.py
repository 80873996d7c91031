"""A token or an address that no header or socket can carry is refused in a sentence, wherever it is read."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from drumline._transport import Config
from drumline.errors import ConfigError

URL = "http://127.0.0.1:1"


@pytest.mark.parametrize("token", ["é", "drm_pat_abc\ndef", "a b", "\u200bdrm", "drm\x00", "   "])
def test_a_token_that_no_header_carries_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.load(URL, token, environ={})

    assert "token" in str(caught.value)
    assert "drm" not in str(caught.value)


def test_blanks_around_a_token_are_no_part_of_it() -> None:
    assert Config.load(URL, " drm_pat_abc\n", environ={}).token.get_secret_value() == "drm_pat_abc"


@pytest.mark.parametrize("url", ["http://é:1", "http://a b:1", "http://\x00", "http://a\x7f"])
def test_an_address_that_no_socket_takes_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="is no server address"):
        Config.load(url, "drm_pat_abc", environ={})


@pytest.mark.parametrize(
    ("command", "environ", "words"),
    [
        (["drumline.cli", "ps"], {"DRUMLINE_URL": URL, "DRUMLINE_TOKEN": "é"}, "the token holds"),
        (["drumline.cli", "ps"], {"DRUMLINE_URL": "http://é", "DRUMLINE_TOKEN": "x"}, "is no server address"),
        (["drumline_worker", "run"], {"DRUMLINE_WORKER_SERVER": "http://é"}, "server"),
    ],
)
def test_the_command_line_says_so_without_a_traceback(
    tmp_path: Path, command: list[str], environ: dict[str, str], words: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-P", "-m", *command],
        env={**os.environ, "DRUMLINE_WORKER_DATA_DIR": str(tmp_path), **environ},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert ended.returncode not in (0, 1)
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_worker_says_so_of_its_enrolment_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("é\n")
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "drumline_worker", "run", "--server", URL, "--enroll-token-file", str(token),
         "--data-dir", str(tmp_path / "data")],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip

    assert ended.returncode != 0
    assert "the enrolment token holds a character that no token does" in ended.stderr
    assert "Traceback" not in ended.stderr
