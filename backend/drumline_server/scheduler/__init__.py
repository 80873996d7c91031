"""The loops: placing queued runs, enforcing deadlines."""
