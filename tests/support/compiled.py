"""Tests define the same steps anew, each a program for XLA: it compiles each once in a process."""

from pathlib import Path

import jax


def keep_compiled_programs(folder: Path) -> None:
    """In `folder`, of this process only: JAX writes its files in place, where another process would read half a one."""
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
