"""The live feed: events of runs as they happen, and hints that a list changed."""
