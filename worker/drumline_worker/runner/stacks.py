"""Where the threads of this process stand, read without touching them."""

import faulthandler
import os

_IN = '  File "{}'


class Stacks:
    """One look at all Python threads: of the newest 100 of them the innermost 100 calls, as text.

    faulthandler reads them in C while none of them moves. A walk along `f_back` makes frame objects of threads that
    run on between two of its steps, and has ended a program of CPython 3.11.7 by SIGSEGV.
    """

    def __init__(self) -> None:
        self._file = os.memfd_create("drumline-stacks")
        self._told = ""

    def look(self) -> None:
        """Takes the place of the look before. Only one thread at a time may call it."""
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)
        faulthandler.dump_traceback(self._file, all_threads=True)
        self._told = os.pread(self._file, os.fstat(self._file).st_size, 0).decode("ascii", "replace")

    def pass_through(self, file: str) -> bool:
        """Whether any thread has a call into the Python file of that path on its stack."""
        return f'{_IN.format(_escaped(file))}", line' in self._told

    def innermost_is_below(self, thread: int, directories: tuple[str, ...]) -> bool:
        """Whether the innermost call of the thread with that identity is one into a file of those directories."""
        _, _, stack = self._told.partition(f"hread 0x{thread:016x} ")
        innermost = stack.partition("\n")[2]
        return innermost.startswith(tuple(_IN.format(_escaped(directory)) for directory in directories))


def _escaped(path: str) -> str:
    """As faulthandler writes it."""
    return path.encode("ascii", "backslashreplace").decode()
