"""One call of ``run``: find the compiled step or build it, call it."""
