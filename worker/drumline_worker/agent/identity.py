"""Who this worker is: `worker.json` in the data directory, readable by its owner only."""

import os
from pathlib import Path

from pydantic import ValidationError

from drumline.contracts.base import Contract, Secret
from drumline.contracts.ids import HostId


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
