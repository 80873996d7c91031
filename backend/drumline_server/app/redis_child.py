"""Runs a Redis server and ends it with its parent. A script of its own, so that it starts in milliseconds.

Usage: redis_child.py PARENT_FD COMMAND [ARGUMENT ...]. At the end of file on PARENT_FD, and at SIGTERM, the command is
terminated. Exits with the command's exit code.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys

KILL_AFTER_S = 5.0
PR_SET_PDEATHSIG = 1


def main() -> int:
    """The exit code of the command."""
    parent_fd, command = int(sys.argv[1]), sys.argv[2:]
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_die_with_parent)
    while child.poll() is None:
        readable, _, _ = select.select([parent_fd, woken], [], [])
        numbers = os.read(woken, 64) if woken in readable else b""
        if parent_fd in readable or signal.SIGTERM in numbers or signal.SIGINT in numbers:
            return _end(child)
    return child.returncode


def _end(child: "subprocess.Popen[bytes]") -> int:
    child.terminate()
    try:
        return child.wait(KILL_AFTER_S)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


def _die_with_parent() -> None:
    """Lets Linux end the command even if this very process is killed."""
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
