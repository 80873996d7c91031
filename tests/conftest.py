"""Fixtures that tests of all folders share."""

from support.scratch import write_in_memory

pytest_plugins = ("support.broker", "support.databases")

write_in_memory()
