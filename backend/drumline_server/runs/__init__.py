"""Runs: submitting, listing, looking at one, cancelling."""
