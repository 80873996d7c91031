"""A second network on this machine: its processes share no loopback with ours, and reach us by a pair of devices."""

import itertools
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_STEP_S = 20.0
_numbers = itertools.count()
"""Of the networks of this process: several may be there at once."""
_BENCHMARKS = "198.18"
"""RFC 2544: addresses that nobody has in the field."""


@dataclass(frozen=True, slots=True)
class FarNetwork:
    """Its own address, ours as its processes see it, and an interpreter whose processes live there."""

    address: str
    our_address: str
    python: Path
    inside: tuple[str, ...]
    """What runs a command there."""

    def cut(self) -> None:
        """Takes down its end of the line: nothing passes, and nobody is told."""
        assert not (wrong := _run(*self.inside, "ip", "link", "set", "far", "down")), wrong

    def mend(self) -> None:
        """The line is as it was."""
        assert not (wrong := _run(*self.inside, "ip", "link", "set", "far", "up")), wrong


@contextmanager
def far_network(directory: Path) -> Iterator[FarNetwork]:
    """A network that is gone afterwards. Skips the test, naming why, where this machine lets nobody make one."""
    for tool in ("unshare", "nsenter", "ip"):
        if shutil.which(tool) is None:
            pytest.skip(f"no network namespaces: {tool} is not installed")
    holder = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "echo made && exec cat"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        assert holder.stdout is not None
        said = holder.stdout.readline().strip()
        if said != "made":
            pytest.skip(f"no network namespaces: {said}")
        yield _connect(holder.pid, directory)
    finally:
        holder.communicate(timeout=_STEP_S)


def _connect(holder: int, directory: Path) -> FarNetwork:
    """The pair of devices goes with the last process of its network."""
    third, fourth = divmod((16 * os.getpid() + next(_numbers) % 16) % (1 << 14), 1 << 6)
    ours, theirs = (f"{_BENCHMARKS}.{third}.{4 * fourth + end}" for end in (1, 2))
    near, inside = f"dl{holder}", ("nsenter", f"--net=/proc/{holder}/ns/net")
    made = _run("ip", "link", "add", near, "type", "veth", "peer", "name", "far", "netns", str(holder))
    if made:
        pytest.skip(f"no pair of network devices: {made}")
    for command in (
        ("ip", "address", "add", f"{ours}/30", "dev", near),
        ("ip", "link", "set", near, "up"),
        (*inside, "ip", "address", "add", f"{theirs}/30", "dev", "far"),
        (*inside, "ip", "link", "set", "lo", "up"),
        (*inside, "ip", "link", "set", "far", "up"),
    ):
        assert not (wrong := _run(*command)), wrong
    python = directory / "far-python"
    python.write_text(f'#!/bin/sh\nexec {" ".join(inside)} -- "{sys.executable}" "$@"\n')
    python.chmod(stat.S_IRWXU)
    return FarNetwork(theirs, ours, python, inside)


def _run(*command: str) -> str:
    """What it says of its failure; empty for none."""
    ended = subprocess.run(command, capture_output=True, text=True, timeout=_STEP_S, check=False)
    return "" if ended.returncode == 0 else f"{' '.join(command)}: {(ended.stderr or ended.stdout).strip()}"
