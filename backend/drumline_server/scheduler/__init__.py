"""The loops: placing queued runs, ringing doorbells, enforcing deadlines."""
