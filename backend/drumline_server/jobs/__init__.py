"""Jobs and their immutable versions."""
