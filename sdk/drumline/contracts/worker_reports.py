"""What a worker tells the process that started it, one line of JSON each: how far it is, and what of it fails."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from drumline.contracts.base import Contract, Text

MAX_REPORT = 600
"""Characters of a sentence: a line stays below what a pipe takes at once."""


class WorkerReport(Contract):
    """How far a worker is (`doing`), that all of it stands (`ready`), or what of it does not work (`trouble`)."""

    kind: Literal["doing", "ready", "trouble"]
    text: Annotated[Text, StringConstraints(max_length=MAX_REPORT)] = ""
    part: Literal["worker", "launcher", "celery", "devices"] = "worker"
    devices: Annotated[int, Field(ge=0, le=4_096)] = 0
    """Of this host; known once it is ready."""
