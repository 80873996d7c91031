"""Texts that come from outside: tokens, cursors, positions, settings."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from drumline.contracts.base import new_id
from drumline_server.app.local import prepare, write_private
from drumline_server.base import callers
from drumline_server.base.callers import decode_cursor, encode_cursor
from drumline_server.base.errors import DataDirectoryError, InvalidRequestError
from drumline_server.base.settings import Settings
from drumline_server.live.streams import format_positions, parse_positions, parse_topics


def test_a_token_has_a_kind_and_a_checksum() -> None:
    token = callers.new_token("pat")

    assert len(token) == len("drm_pat_") + 43 + 1 + 6
    assert callers.is_well_formed(token, "pat")
    assert not callers.is_well_formed(token, "wrk")


@given(st.integers(8, 50), st.sampled_from("0aZ_"))
def test_one_changed_character_breaks_a_token(at: int, character: str) -> None:
    token = callers.new_token("pat")
    changed = token[:at] + character + token[at + 1 :]

    assert changed == token or not callers.is_well_formed(changed, "pat")


@given(st.text(max_size=100))
def test_no_text_is_taken_for_a_token(text: str) -> None:
    assert not callers.is_well_formed(text, "pat")
    callers.digest(text)


@given(st.integers(-(2**63), 2**63 - 1), st.text(st.characters(categories=["L", "N"]), max_size=50))
def test_a_cursor_comes_back_as_it_was(number: int, text: str) -> None:
    assert decode_cursor(encode_cursor(number, text), int, str) == (number, text)


@given(st.text(max_size=100))
def test_any_other_text_is_a_cursor_that_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        decode_cursor(text, int, str)


@pytest.mark.parametrize("key", [(2**63,), (True,), (1.5,), (None,), ("1",), (1, 2)])
def test_a_cursor_of_other_values_is_refused(key: tuple[int, ...]) -> None:
    with pytest.raises(InvalidRequestError):
        decode_cursor(encode_cursor(*key), int)


@given(st.dictionaries(st.builds(lambda: new_id("run")), st.integers(0, 2**53 - 1), max_size=5))
def test_positions_come_back_as_they_were(positions: dict[str, int]) -> None:
    assert parse_positions(format_positions(positions), "from") == positions


def test_topics_are_taken_once_each() -> None:
    run_id = new_id("run")

    topics = parse_topics(f"runs,run:{run_id},run:{run_id},fleet")

    assert topics.runs == (run_id,)
    assert topics.hints == {"runs", "fleet"}


def test_listening_to_the_world_needs_a_proxy_and_names() -> None:
    with pytest.raises(ValidationError, match="lets other machines in"):
        Settings(host="0.0.0.0")
    Settings.model_validate({"host": "0.0.0.0", "behind_proxy": True, "allowed_hosts": "drumline.example"})


def test_secrets_of_the_settings_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRUMLINE_DATABASE_URL", "postgresql+psycopg://user:hunter2@db/drumline")

    settings = Settings()

    assert "hunter2" not in repr(settings)
    assert settings.url.startswith("postgresql+psycopg://user:hunter2@")


def test_a_data_directory_that_others_may_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)

    with pytest.raises(DataDirectoryError, match="chmod 700"):
        prepare(tmp_path)
    prepare(tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_a_private_file_is_private_even_where_a_public_one_was(tmp_path: Path) -> None:
    path = tmp_path / "client.json"
    path.write_text("old")
    path.chmod(0o644)

    write_private(path, "new")

    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600
