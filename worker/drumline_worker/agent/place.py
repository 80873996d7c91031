"""Names the place that a worker lives in, so that a copy of its data directory or of its machine is told apart (P7)."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from drumline_worker.clock import boot_id


def place_of(data_dir: Path, system: Path = Path("/")) -> str:
    """A digest of the machine and the data directory, alike after each restart; empty where they cannot be told.

    A copied directory has another inode, a cloned machine another network card. Processes in other pid namespaces are
    not seen, so that a new container is another place. A machine without a network card of its own, as most containers
    are, is known by its boot: the place changes with it. `system` is where /etc, /proc and /sys are.
    """
    try:
        return hashlib.sha256("\n".join([*_machine(data_dir, system), *_directory(data_dir)]).encode()).hexdigest()
    except OSError:
        return ""


def _machine(data_dir: Path, system: Path) -> Iterator[str]:
    yield os.readlink(system / "proc/self/ns/pid")
    cards = sorted(_hardware_addresses(system / "sys/class/net"))
    if cards:
        machine_id = system / "etc/machine-id"
        yield machine_id.read_text().strip() if machine_id.is_file() else ""
        yield from cards
    else:
        yield boot_id()
        yield str(data_dir.stat().st_dev)  # not the same after every reboot, so not where that matters


def _hardware_addresses(interfaces: Path) -> Iterator[str]:
    """Of what has a device behind it: not loopback, bridges, tunnels, nor a container's end of a pair."""
    if interfaces.is_dir():
        for interface in interfaces.iterdir():
            if (interface / "device").exists():
                yield (interface / "address").read_text().strip()


def _directory(data_dir: Path) -> Iterator[str]:
    """Volumes have inodes in common, the first of each above all."""
    yield os.path.realpath(data_dir)
    yield str(data_dir.stat().st_ino)
    yield str(os.statvfs(data_dir).f_fsid)
