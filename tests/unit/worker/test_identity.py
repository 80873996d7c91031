"""The worker's identity is private, and damage is told with the way out."""

from pathlib import Path

import pytest

from drumline.contracts.base import new_id
from drumline_worker.agent.identity import Identity, IdentityError, IdentityFile

HOST = new_id("hst")


def _save(directory: Path) -> Path:
    IdentityFile(directory).save(Identity.model_validate({"host": HOST, "token": "drm_wrk_x"}))
    return directory / "worker.json"


def test_the_token_is_for_its_owner_only(tmp_path: Path) -> None:
    assert _save(tmp_path).stat().st_mode & 0o777 == 0o600
    loaded = IdentityFile(tmp_path).load()
    assert loaded is not None
    assert loaded.token.get_secret_value() == "drm_wrk_x"
    assert "drm_wrk_x" not in repr(loaded)


def test_before_enrolment_there_is_none(tmp_path: Path) -> None:
    assert IdentityFile(tmp_path).load() is None


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    _save(tmp_path).chmod(0o644)
    with pytest.raises(IdentityError, match="0600"):
        IdentityFile(tmp_path).load()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    _save(tmp_path).write_text("{")
    with pytest.raises(IdentityError, match=r"worker\.json is damaged; remove it and enrol again"):
        IdentityFile(tmp_path).load()
