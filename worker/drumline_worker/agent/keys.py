"""The keys of members: without its key nobody, not even with this host's token, speaks for a member.

The agent makes a key before it claims the member, and sends it with all that it says of it. No other process gets it:
the shim, from which the program's process is forked, has no use for it, as what it spools is sent by the agent.
"""

import os
from pathlib import Path

from pydantic import SecretStr

from drumline_worker.host.rundir import sync_directory

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LENGTH = 43
"""Characters of 256 bits."""


class MemberKeys:
    """One file (0600) for each member, in a directory (0700) beside those that programs are told of."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[str, SecretStr] = {}
        self._held: set[str] = set()

    def make(self, member: str) -> SecretStr:
        """The member's key, durable before it is returned: an agent that restarts continues with it. Raises OSError."""
        known = self.find(member)
        if known is not None:
            return known
        key = _new_key()
        draft = self._directory / f".{member}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self._directory / member)
        sync_directory(self._directory)
        self._known[member] = SecretStr(key)
        return self._known[member]

    def find(self, member: str) -> SecretStr | None:
        """The key that was made; None for a member that was claimed without, or whose key the disk has lost."""
        if member not in self._known:
            try:
                self._known[member] = SecretStr((self._directory / member).read_text())
            except FileNotFoundError:
                return None
        return self._known[member]

    def hold(self, member: str) -> None:
        """Its claim may have been taken, which no answer told: it is claimed again, and only with the same key."""
        self._held.add(member)

    def forget(self, member: str) -> None:
        """Nothing more will be said of it, unless it is to be claimed again."""
        if member in self._held:
            self._held.discard(member)
            return
        self._known.pop(member, None)
        (self._directory / member).unlink(missing_ok=True)

    def keep_only(self, members: set[str]) -> None:
        """Deletes the keys of all others, which an earlier agent has left."""
        for file in self._directory.iterdir():
            if file.name not in members:
                file.unlink()


def _new_key() -> str:
    value, digits = int.from_bytes(os.urandom(32)), []
    for _ in range(_LENGTH):
        value, digit = divmod(value, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(digits)
