"""`python -m drumline_server`."""

import sys

from drumline_server.cli import server

sys.exit(server.main(prog_name="python -m drumline_server"))
