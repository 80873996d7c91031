"""The directory where an embedded server keeps everything; nobody else may write there."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class DataDirectoryError(Exception):
    """The data directory cannot be used as it is."""


def prepare(directory: Path) -> None:
    """Makes the directory, readable by this user alone. Raises DataDirectoryError if others may write in it."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise DataDirectoryError(f"The data directory {directory} cannot be made: {error.strerror}.") from error
    found = directory.stat()
    if found.st_uid != os.geteuid():
        raise DataDirectoryError(f"The data directory {directory} belongs to another user; choose one of your own.")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise DataDirectoryError(
            f"Others may write in the data directory {directory}: run chmod 700 {directory}, or choose another."
        )


@contextmanager
def locked(directory: Path, name: str) -> Iterator[None]:
    """Inside, no other process is inside with the same file."""
    descriptor = os.open(directory / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
