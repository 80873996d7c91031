"""Progress on a terminal, and in plain lines where there is none. Exactly one process draws: the one you look at."""

import os
import sys
import time
from collections.abc import Mapping
from typing import Protocol, TextIO

from drumline.wording import rate_text

PLAIN_EVERY_S = 30.0
PLAIN_EVERY_FRACTION = 0.1


class Progress(Protocol):
    """Shows how far something is. Everything goes to one stream, so that results on stdout stay clean."""

    def update(
        self, step: int, total: int | None, rate: float | None = None, scalars: Mapping[str, float] | None = None
    ) -> None:
        """`step` of `total` steps are done, at `rate` steps a second, with the latest `scalars`."""

    def line(self, text: str) -> None:
        """Prints a line of its own, above a bar where there is one."""

    def close(self) -> None:
        """Leaves the stream at the start of a line."""


def open_progress(stream: TextIO | None = None) -> Progress:
    """A live bar if `stream` (stderr) is a terminal and this is no CI job, else plain lines."""
    stream = stream or sys.stderr
    if stream.isatty() and not os.environ.get("CI"):
        return BarProgress(stream)
    return LineProgress(stream)


class LineProgress:
    """A line at the start, then each tenth of the way or half a minute."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last_step = -1
        self._last_text = ""
        self._due_step = 0.0
        self._due_time = 0.0
        self._unprinted = ""

    def update(
        self, step: int, total: int | None, rate: float | None = None, scalars: Mapping[str, float] | None = None
    ) -> None:
        """As `Progress.update`."""
        text = f"step {step}{f'/{total}' if total else ''}{describe(rate, scalars)}"
        if text == self._last_text:
            return
        advanced, self._last_step, self._last_text = step != self._last_step, step, text
        reached = total is not None and step >= self._due_step
        if advanced and (reached or time.monotonic() >= self._due_time):
            self._due_step = (step // (total * PLAIN_EVERY_FRACTION) + 1) * total * PLAIN_EVERY_FRACTION if total else 0
            self._due_time = time.monotonic() + PLAIN_EVERY_S
            self.line(text)
        else:
            self._unprinted = text

    def line(self, text: str) -> None:
        """As `Progress.line`."""
        self._unprinted = ""
        print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """As `Progress.close`."""
        if self._unprinted:
            self.line(self._unprinted)


class BarProgress:
    """A bar that redraws itself four times a second."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = (
            SpinnerColumn(),
            MofNCompleteColumn(),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
        )
        self._console = Console(file=stream, highlight=False, markup=False)
        self._bar = Bar(*columns, console=self._console, refresh_per_second=4, transient=True)
        self._task = self._bar.add_task("", total=None)
        self._last = ""
        self._bar.start()

    def update(
        self, step: int, total: int | None, rate: float | None = None, scalars: Mapping[str, float] | None = None
    ) -> None:
        """As `Progress.update`."""
        description = describe(rate, scalars).strip()
        self._last = f"step {step}{f'/{total}' if total else ''}  {description}"
        self._bar.update(self._task, completed=step, total=total, description=description)

    def line(self, text: str) -> None:
        """As `Progress.line`."""
        self._console.print(text, soft_wrap=True)

    def close(self) -> None:
        """As `Progress.close`."""
        self._bar.stop()
        if self._last:
            self._console.print(self._last, soft_wrap=True)


def describe(rate: float | None, scalars: Mapping[str, float] | None) -> str:
    """`  12.3 steps/s  loss 0.31`, as far as known, with two spaces before each."""
    shown = [f"{rate_text(rate)} steps/s"] if rate else []
    shown += [f"{name} {value:.4g}" for name, value in (scalars or {}).items()]
    return "".join(f"  {part}" for part in shown)
