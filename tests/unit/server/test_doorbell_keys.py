"""The secret that signs doorbells is made once, kept private, and differs per host."""

import stat
from pathlib import Path

from drumline_server.settings import Settings
from drumline_server.workers.doorbell_keys import DoorbellKeys


def test_secret_is_made_once_and_readable_by_nobody_else(tmp_path: Path) -> None:
    settings = Settings.model_validate({"data_dir": tmp_path / "data"})

    first, second = DoorbellKeys.load(settings), DoorbellKeys.load(settings)

    assert first == second
    assert len(first.secret) == 32
    (kept,) = (tmp_path / "data").iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_given_secret_is_used_and_nothing_is_written(tmp_path: Path) -> None:
    keys = DoorbellKeys.load(Settings.model_validate({"data_dir": tmp_path, "secret_key": "given"}))

    assert keys.secret == b"given"
    assert list(tmp_path.iterdir()) == []


def test_each_host_has_its_own_key() -> None:
    keys = DoorbellKeys(b"secret")

    assert keys.key("hst_a") != keys.key("hst_b")
