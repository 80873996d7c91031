"""Keys that sign doorbells: one secret of the server, one key per host derived from it."""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import HTTPConnection

from drumline.contracts.doorbell import derive_key
from drumline_server.settings import Settings

_FILE = "secret"
_BYTES = 32


@dataclass(frozen=True, slots=True)
class DoorbellKeys:
    """The secret, and the name `kid` that hosts know their key by."""

    secret: bytes
    kid: str = "k1"

    @classmethod
    def load(cls, settings: Settings) -> "DoorbellKeys":
        """From the settings, else from the data directory, where a random secret is made once."""
        given = settings.secret_key.get_secret_value()
        return cls(given.encode() if given else _kept_secret(settings.data_dir))

    def key(self, host_id: str) -> bytes:
        """The key of one host."""
        return derive_key(self.secret, host_id, self.kid)


async def get_doorbell_keys(connection: HTTPConnection) -> DoorbellKeys:
    """The keys that the server was started with."""
    keys: DoorbellKeys = connection.app.state.doorbell_keys
    return keys


def _kept_secret(data_dir: Path) -> bytes:
    """The secret of the data directory; of two processes that make it at once, both read the first one's."""
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = data_dir / _FILE
    if not path.exists():
        fresh = data_dir / f"{_FILE}.{secrets.token_hex(8)}"
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(fresh, path)
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    return bytes.fromhex(path.read_text())
