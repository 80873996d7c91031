"""`python -m drumline_worker`."""

import sys

from drumline.cli.main import main

main(["worker", *sys.argv[1:]])
