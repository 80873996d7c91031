"""Which version of Drumline this server is."""

from importlib.metadata import version

VERSION = version("drumline")
