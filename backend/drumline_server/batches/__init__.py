"""Batches: submitting many runs at once, sweeps, and tables of their outcomes."""
