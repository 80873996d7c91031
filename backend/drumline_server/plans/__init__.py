"""Plans: what a run would do, without running it."""
