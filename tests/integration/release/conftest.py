"""What the release before left behind, unpacked for a test of today's code."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from release.unpacked import Release, unpacked


@pytest.fixture
def release(database_kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Release]:
    """Its data on a database of each kind, not migrated yet."""
    postgres = request.getfixturevalue("postgres_server") if database_kind == "postgresql" else None
    with unpacked(database_kind, tmp_path, postgres) as found:
        yield found
