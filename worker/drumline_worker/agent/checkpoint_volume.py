"""Gives a volume of checkpoints a name that all hosts which mount it read, and no other host does."""

import os
from pathlib import Path

from drumline.contracts.ids import new_id

_NAME_FILE = ".drumline-store"


def volume_name(directory: Path) -> str:
    """The name of the volume at `directory`, made by the first worker that asks. OSError for one that can't be used."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    named = directory / _NAME_FILE
    draft = directory / f"{_NAME_FILE}.{os.getpid()}.{new_id('tmp')}"
    draft.write_text(new_id("vol"))
    try:
        os.link(draft, named)  # of several at once only one succeeds, and its file is whole
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    return named.read_text().strip()
