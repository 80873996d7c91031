"""Imported before anything else of the engine: says which extra is missing, in place of a library's name alone."""

from importlib.util import find_spec

for _package in ("jax", "numpy", "grain"):
    if find_spec(_package) is None:
        raise ModuleNotFoundError(
            f"drumline.distribute needs {_package}, which is not installed: pip install 'drumline[jax]'", name=_package
        )
