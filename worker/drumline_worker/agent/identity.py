"""Who this worker is: `worker.json`, the single-use token it enrols with, and the location that it lives in (P7)."""

import asyncio
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from pydantic import SecretStr, ValidationError

from drumline.contracts.base import Contract, HostId, Secret
from drumline_worker.host.system import boot_id


class Identity(Contract):
    """The host's id and its long-lived token."""

    host: HostId
    token: Secret


class IdentityError(Exception):
    """worker.json cannot be used; the message says what to do."""


class IdentityFile:
    """Reads and writes worker.json."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / "worker.json"

    def load(self) -> Identity | None:
        """The identity, or None before the first enrolment. Raises IdentityError when others may read it."""
        try:
            if self._path.stat().st_mode & 0o077:
                raise IdentityError(f"{self._path} is open to others; make it 0600, or remove it and enrol again")
            identity = Identity.model_validate_json(self._path.read_bytes())
            if not all("!" <= character <= "~" for character in identity.token.get_secret_value()):
                raise IdentityError(f"{self._path} is damaged; remove it and enrol again")
            return identity
        except FileNotFoundError:
            return None
        except ValidationError:
            raise IdentityError(f"{self._path} is damaged; remove it and enrol again") from None

    def save(self, identity: Identity) -> None:
        """Replaces the file whole."""
        draft = self._path.with_suffix(".draft")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(identity.model_dump_json().encode())
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self._path)


MAX_TOKEN_BYTES = 1_024


class EmptyTokenError(Exception):
    """The descriptor was closed before a token came."""


class OddTokenError(Exception):
    """It holds a character that no token has, and that no header carries."""


class Enrolment:
    """A descriptor of a file or a pipe with a token in its first line."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    async def token(self) -> SecretStr:
        """The token, as soon as it is there; can be had once. Raises EmptyTokenError, OddTokenError."""
        token = (await self._first_line()).decode("ascii", "replace").strip()
        if not token:
            raise EmptyTokenError
        if not all("!" <= character <= "~" for character in token):
            raise OddTokenError
        return SecretStr(token)

    async def _first_line(self) -> bytes:
        stream = os.fdopen(self._fd, "rb", buffering=0)
        if stat.S_ISREG(os.fstat(self._fd).st_mode):
            with stream:
                return stream.readline(MAX_TOKEN_BYTES)
        reader = asyncio.StreamReader(limit=MAX_TOKEN_BYTES)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), stream)
        try:
            return await reader.readline()
        except ValueError:
            return b""  # longer than any token
        finally:
            transport.close()


def location_of(data_dir: Path, system: Path = Path("/")) -> str:
    """A digest of the machine and the data directory, alike after each restart; empty where they cannot be told.

    A copied directory has another inode, a cloned machine another network card. Processes in other pid namespaces are
    not seen, so that a new container is another location. A machine without a network card of its own, as most
    containers are, is known by its boot: the location changes with it. `system` is where /etc, /proc and /sys are.
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
