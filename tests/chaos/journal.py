"""What the server acknowledged to a client, kept by the client: the one account that a faulty server cannot mend."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drumline import Client, Run
from drumline.contracts.states import TERMINAL_RUN


@dataclass(frozen=True, slots=True)
class Entry:
    """`kind` is `asked` before a submission leaves, `acknowledged` once the server answered it, `seen` for a state."""

    kind: str
    key: str
    run: str = ""
    state: str = ""


class Journal:
    """Entries in a file, each on disk before the next step of the client."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def submit(self, client: Client, source: Path, key: str, **options: Any) -> Run:
        """Submits with this idempotency key. Raises what the client raises; the key is then asked for and no more."""
        self.ask(key)
        run = client.submit(source, idempotency_key=key, **options)
        self.acknowledge(key, run.id)
        return run

    def ask(self, key: str) -> None:
        """A submission with this key is about to leave."""
        self._write(Entry("asked", key))

    def acknowledge(self, key: str, run_id: str) -> None:
        """It was answered with this run."""
        self._write(Entry("acknowledged", key, run_id))

    def see(self, run: Run) -> None:
        """A terminal state that the server showed must stay."""
        if run.state in TERMINAL_RUN:
            self._write(Entry("seen", "", run.id, run.state))

    def entries(self, kind: str) -> Iterator[Entry]:
        """Those of one kind, oldest first."""
        for line in self._path.read_text().splitlines():
            entry = Entry(**json.loads(line))
            if entry.kind == kind:
                yield entry

    def close(self) -> None:
        """No entry follows."""
        os.close(self._file)

    def _write(self, entry: Entry) -> None:
        line = {"kind": entry.kind, "key": entry.key, "run": entry.run, "state": entry.state}
        os.write(self._file, json.dumps(line).encode() + b"\n")
        os.fsync(self._file)
