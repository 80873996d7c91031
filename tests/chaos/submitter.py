"""A client that submits all the time and never gives a key up before it is answered."""

import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx2

from chaos.harness import Site
from drumline.contracts.base import new_id

_TIMEOUT_S = 30.0


class Submitter:
    """Submits `program` every `pause_s` while the block lasts. Bare HTTP: what the server says is not smoothed over."""

    def __init__(self, site: Site, program: Path, pause_s: float) -> None:
        self._site = site
        self._pause_s = pause_s
        self._name = f"submitter-{new_id('run')}"
        self._body = site.client().prepare(program).model_dump_json().encode()
        self._http = site.http()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._submit_forever, name="submitter")
        self.statuses: set[int] = set()
        """Every status that was answered."""
        self.longest_s = 0.0
        """How long the slowest answer took, of those that came."""
        self.runs: list[str] = []
        """What the acknowledged ones made."""

    @property
    def taken(self) -> int:
        """Submissions that were acknowledged."""
        return len(self.runs)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(_TIMEOUT_S * 2)
        assert not self._thread.is_alive()

    def _submit_forever(self) -> None:
        while not self._stop.is_set():
            key = f"{self._name}-{self.taken}"
            self._site.journal.ask(key)
            while not self._take(key) and not self._stop.is_set():
                self._stop.wait(self._pause_s)
            self._stop.wait(self._pause_s)

    def _take(self, key: str) -> bool:
        """Whether the server acknowledged it."""
        headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
        asked = time.monotonic()
        try:
            answer = self._http.post("/runs", content=self._body, headers=headers)
        except httpx2.TransportError:
            return False
        self.statuses.add(answer.status_code)
        self.longest_s = max(self.longest_s, time.monotonic() - asked)
        if answer.status_code != httpx2.codes.CREATED:
            return False
        run_id = answer.json()["run"]["id"]
        self._site.journal.acknowledge(key, run_id)
        self.runs.append(run_id)
        return True
