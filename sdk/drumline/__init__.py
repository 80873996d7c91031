"""Drumline runs distributed-strategy jobs: submit a program, watch its replicas, read every reduction.

    from drumline import Client

    run = Client().submit("digits.py", replicas=8)
    print(run.wait().result)

`drumline.distribute` is the engine and needs the `jax` extra; everything named here does not.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drumline._transport import Config
    from drumline.client import Client
    from drumline.errors import (
        APIError,
        DrumlineError,
        MediaError,
        RunCancelledError,
        RunFailedError,
        ServerUnreachableError,
        WaitTimeoutError,
    )
    from drumline.job import ArtifactWarning, RunContext, RunStopping
    from drumline.media import Histogram, Image, Table, Text
    from drumline.resources.plans import Plan
    from drumline.resources.runs import Run

__all__ = [
    "APIError",
    "ArtifactWarning",
    "Client",
    "Config",
    "DrumlineError",
    "Histogram",
    "Image",
    "MediaError",
    "Plan",
    "Run",
    "RunCancelledError",
    "RunContext",
    "RunFailedError",
    "RunStopping",
    "ServerUnreachableError",
    "Table",
    "Text",
    "WaitTimeoutError",
]

_MODULES = {
    "ArtifactWarning": "drumline.job",
    "Client": "drumline.client",
    "Config": "drumline._transport",
    "Histogram": "drumline.media",
    "Image": "drumline.media",
    "Plan": "drumline.resources.plans",
    "Run": "drumline.resources.runs",
    "RunContext": "drumline.job",
    "RunStopping": "drumline.job",
    "Table": "drumline.media",
    "Text": "drumline.media",
}


def __getattr__(name: str) -> Any:  # Any: the public names, loaded at first use so that the import stays fast
    if name not in __all__:
        raise AttributeError(f"module 'drumline' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_MODULES.get(name, "drumline.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
