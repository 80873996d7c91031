"""Where tests write: tens of thousands of small files, made and thrown away, so in memory where there is room."""

import os
import shutil
import tempfile
from pathlib import Path

_MEMORY = Path("/dev/shm")
_ROOM = 4 << 30


def scratch_root() -> Path | None:
    """A file system in memory that can hold a test run and start programs; None: the system's own place will do."""
    if not _MEMORY.is_dir() or not os.access(_MEMORY, os.W_OK) or shutil.disk_usage(_MEMORY).free < _ROOM:
        return None
    return None if os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC else _MEMORY


def write_in_memory() -> None:
    """Temporary files of this process and its children go there, unless TMPDIR names another place."""
    root = scratch_root()
    if root is not None and "TMPDIR" not in os.environ:
        os.environ["TMPDIR"] = str(root)
        tempfile.tempdir = None
