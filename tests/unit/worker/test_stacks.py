"""Where the threads of a process stand."""

import importlib.util
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drumline_worker.runner.channel import Stacks
from support.processes import wait_until

WAITS = "import os\n\n\ndef wait(pipe):\n    os.read(pipe, 1)\n"
PASSES = "def through(wait, pipe):\n    wait(pipe)\n"


def function(file: Path, source: str, name: str) -> object:
    """One that stands in a file of its own."""
    file.parent.mkdir(parents=True)
    file.write_text(source)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


@contextmanager
def thread_that_waits(directory: Path) -> Iterator[threading.Thread]:
    """It went through `é/passes.py`, and waits in `waits/waits.py`."""
    ours, theirs = os.pipe()
    through = function(directory / "é" / "passes.py", PASSES, "through")
    wait = function(directory / "waits" / "waits.py", WAITS, "wait")
    thread = threading.Thread(target=through, args=(wait, ours))  # type: ignore[arg-type]
    thread.start()
    try:
        yield thread
    finally:
        os.write(theirs, b".")
        thread.join()
        os.close(ours)
        os.close(theirs)


def test_a_look_finds_the_innermost_call_and_those_around_it_in_every_thread(tmp_path: Path) -> None:
    stacks = Stacks()
    waits, passes = str(tmp_path / "waits") + os.sep, str(tmp_path / "é") + os.sep

    def is_found(thread: threading.Thread) -> bool:
        stacks.look()
        return stacks.innermost_is_below(thread.ident or 0, ("/nowhere/", waits))

    with thread_that_waits(tmp_path) as thread:
        wait_until(lambda: is_found(thread), timeout_s=30, what="it waits in waits.py")
        assert stacks.pass_through(f"{passes}passes.py")
        assert not stacks.pass_through(f"{passes}passes.p")
        assert not stacks.innermost_is_below(thread.ident or 0, (passes,))
        assert not stacks.innermost_is_below(threading.get_ident(), (waits,))
    stacks.look()
    assert not stacks.pass_through(f"{passes}passes.py")
    assert stacks.pass_through(__file__)
