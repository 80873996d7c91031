"""`python -m drumline_worker`."""

from drumline_worker.cli import worker

worker()
