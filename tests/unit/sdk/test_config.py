"""Where the SDK finds its server."""

import json
from pathlib import Path

import pytest

from drumline._transport import Config
from drumline.errors import ConfigError

FILE_URL, FILE_TOKEN = "http://127.0.0.1:7700", "drm_pat_file"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment whose data directory has a client.json, as `drumline up` writes it."""
    (tmp_path / "client.json").write_text(json.dumps({"url": FILE_URL, "token": FILE_TOKEN}))
    return {"DRUMLINE_DATA_DIR": str(tmp_path)}


def test_without_anything_else_the_server_of_this_machine_is_used(environ: dict[str, str]) -> None:
    config = Config.load(environ=environ)
    assert (config.url, config.token.get_secret_value()) == (FILE_URL, FILE_TOKEN)


def test_environment_wins_over_the_file_and_arguments_over_both(environ: dict[str, str]) -> None:
    environ |= {"DRUMLINE_URL": "https://lab:8443/", "DRUMLINE_TOKEN": "drm_pat_env"}
    config = Config.load(environ=environ)
    assert (config.url, config.token.get_secret_value()) == ("https://lab:8443", "drm_pat_env")
    config = Config.load("http://other", "drm_pat_arg", environ=environ)
    assert (config.url, config.token.get_secret_value()) == ("http://other", "drm_pat_arg")


def test_token_of_the_file_goes_to_no_other_server(environ: dict[str, str]) -> None:
    assert Config.load(FILE_URL + "/", environ=environ).token.get_secret_value() == FILE_TOKEN
    with pytest.raises(ConfigError, match="no token for the server at http://elsewhere"):
        Config.load("http://elsewhere", environ=environ)


def test_nothing_known_is_told_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no Drumline server is known") as caught:
        Config.load(environ={"DRUMLINE_DATA_DIR": str(tmp_path)})
    assert "drumline up" in caught.value.hint


@pytest.mark.parametrize("content", ["", "[]", '{"url": "http://x"}', "\xff"])
def test_unreadable_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "client.json").write_text(content, "latin-1")
    with pytest.raises(ConfigError, match=r"client\.json"):
        Config.load(environ={"DRUMLINE_DATA_DIR": str(tmp_path)})


@pytest.mark.parametrize(
    "url", ["localhost:7700", "ftp://x", "http://", "http://u:p@x", "http://x/api", "http://x?a=1", "http://x:port", ""]
)
def test_what_is_no_address_of_a_server_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        Config.load(url, "drm_pat_x", environ={"DRUMLINE_DATA_DIR": str(tmp_path)})


def test_token_shows_in_no_repr(environ: dict[str, str]) -> None:
    assert FILE_TOKEN not in repr(Config.load(environ=environ))
