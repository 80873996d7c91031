"""The life of one gang placement: how it begins, how it ends, and what follows for its run."""
