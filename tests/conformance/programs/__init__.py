"""One module of programs per family of categories."""

from __future__ import annotations

from importlib import import_module

_MODULES = (
    "datasets",
    "input_api",
    "running",
    "reducing",
    "merging",
    "contexts",
    "variables",
    "extended",
    "training",
    "checkpoints",
    "topologies",
    "clusters",
)


def register_all() -> None:
    """Imports every module of programs."""
    for name in _MODULES:
        import_module(f"conformance.programs.{name}")
