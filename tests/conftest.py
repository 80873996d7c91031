"""Fixtures that tests of all folders share."""

pytest_plugins = ("support.broker", "support.databases")
