import pytest

from support.compiled import keep_compiled_programs


@pytest.fixture(scope="session", autouse=True)
def compiled_programs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Of all strategies."""
    keep_compiled_programs(tmp_path_factory.mktemp("programs"))
