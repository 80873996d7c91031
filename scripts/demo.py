"""`make demo`: starts Drumline, submits the digits job, follows it, and keeps the dashboard up until Ctrl-C.

With `--once` it stops everything after the run and exits with the run's own exit code.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
DRUMLINE = str(Path(sys.executable).with_name("drumline"))
MOST_REPLICAS = 8
USUAL_PORT = 7700
READY_S = 120.0
"""On a laptop with a cold disk the worker's first import of JAX may take half a minute."""


def main() -> int:
    """Exit code: the run's own with `--once`, else that of `drumline up`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--once", action="store_true", help="stop after the run and exit with its exit code")
    parser.add_argument(
        "--port", type=int, help="port of the dashboard [default: the last one, else 7700, else a free one]"
    )
    parser.add_argument("--data-dir", type=Path, default=ROOT / ".drumline", help="where the demo keeps its runs")
    options = parser.parse_args()
    port = _usual_port(options.data_dir) if options.port is None else options.port
    with _drumline_up(options.data_dir, port) as up:
        devices = _wait_for_devices(up, options.data_dir)
        if not devices:
            return up.wait()
        code = _submit_digits(options.data_dir, min(devices, MOST_REPLICAS))
        if options.once:
            return code
        print("The run in the browser (the link signs in once, within ten minutes):")
        _drumline(options.data_dir, "open", _newest_run(options.data_dir), "--print")
        print("Press Ctrl-C to stop everything that was started.")
        return up.wait()


def _usual_port(data_dir: Path) -> int:
    """The port of the last time, so that links and open pages stay good; 0 where somebody else listens on it now."""
    port = USUAL_PORT
    with suppress(OSError, ValueError):
        port = urlsplit(json.loads((data_dir / "client.json").read_text())["url"]).port or USUAL_PORT
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return 0
    return port


@contextmanager
def _drumline_up(data_dir: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """`drumline up` in a session of its own, so that it gets exactly one signal: ours. Its stdin is our life line."""
    (data_dir / "client.json").unlink(missing_ok=True)
    life, line = os.pipe()
    command = [DRUMLINE, "up", "--data-dir", str(data_dir), "--port", str(port), "--parent-fd", str(life)]
    up = subprocess.Popen(command, start_new_session=True, pass_fds=[life])
    os.close(life)

    def stop(number: int, _: FrameType | None) -> None:
        up.send_signal(number)

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    try:
        yield up
    finally:
        if up.poll() is None:
            up.send_signal(signal.SIGINT)
        up.wait()
        os.close(line)


def _wait_for_devices(up: subprocess.Popen[bytes], data_dir: Path) -> int:
    """How many devices the worker of `up` registered, all at once; 0 if `up` ended before."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if up.poll() is not None:
            return 0
        if (data_dir / "client.json").exists() and (devices := _devices(data_dir)):
            return devices
        time.sleep(0.1)
    print(f"No worker registered a device within {READY_S:.0f} s; see {data_dir / 'logs'}", file=sys.stderr)
    return 0


def _devices(data_dir: Path) -> int:
    """Of all live hosts; busy ones count, because a run that waits for them says so itself."""
    from drumline import Client

    os.environ["DRUMLINE_DATA_DIR"] = str(data_dir)
    return sum(host.devices for host in Client().hosts() if host.state == "live")


def _submit_digits(data_dir: Path, replicas: int) -> int:
    return _drumline(data_dir, "submit", str(ROOT / "examples" / "digits.py"), "--replicas", str(replicas))


def _newest_run(data_dir: Path) -> str:
    from drumline import Client

    os.environ["DRUMLINE_DATA_DIR"] = str(data_dir)
    return next(iter(Client().list())).id


def _drumline(data_dir: Path, *arguments: str) -> int:
    """Exit code of the CLI. Ctrl-C goes to `up`; the CLI then sees the run end."""
    environment = {**os.environ, "DRUMLINE_DATA_DIR": str(data_dir)}
    return subprocess.run([DRUMLINE, *arguments], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
