"""Fixtures that tests of all folders share."""

import gc
import os
from pathlib import Path

import pytest

from support.scratch import write_in_memory

pytest_plugins = ("support.broker", "support.databases")

write_in_memory()


def pytest_configure(config: pytest.Config) -> None:
    """Writes the report that `scripts/stages.py` counts; a stage of several runs of pytest has several."""
    reports = os.environ.get("DRUMLINE_TEST_REPORTS")
    if reports and not hasattr(config, "workerinput") and not config.option.xmlpath:
        config.option.xmlpath = str(Path(reports) / f"{os.getpid()}.xml")


def pytest_collection_finish() -> None:
    """The modules of all tests live as long as this process: no collection of garbage looks through them again."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Notes how many examples Hypothesis tries at most."""
    settings = getattr(getattr(item, "obj", None), "_hypothesis_internal_use_settings", None)
    if settings is not None:
        item.user_properties.append(("examples", settings.max_examples))
