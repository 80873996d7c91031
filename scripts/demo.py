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
REPLICAS = 8
"""Or as many as there are devices of the best platform, if those are fewer."""
USUAL_PORT = 7700
READY_S = 300.0
"""On a laptop with a cold disk the worker's first import of JAX may take half a minute; `drumline up` gives up sooner
where its worker fails."""
ALONE_S = 60.0
"""A run whose worker is gone for so long is not waited for."""
LOOK_EVERY_S = 2.0


def main() -> int:
    """Exit code: the run's own with `--once`, else that of `drumline up`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--once", action="store_true", help="stop after the run and exit with its exit code")
    parser.add_argument(
        "--port", type=int, help="port of the dashboard [default: the last one, else 7700, else a free one]"
    )
    parser.add_argument("--data-dir", type=Path, default=ROOT / ".drumline", help="where the demo keeps its runs")
    parser.add_argument(
        "--cpu-devices", type=int, default=8, help="simulated CPU devices where there is no accelerator"
    )
    options = parser.parse_args()
    port = _usual_port(options.data_dir) if options.port is None else options.port
    with _drumline_up(options.data_dir, port, options.cpu_devices) as up:
        replicas = _wait_for_devices(up, options.data_dir)
        if not replicas:
            return up.poll() or 1
        code = _submit_digits(up, options.data_dir, min(replicas, REPLICAS))
        if options.once or up.poll() is not None:
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
def _drumline_up(data_dir: Path, port: int, cpu_devices: int) -> Iterator[subprocess.Popen[bytes]]:
    """`drumline up` in a session of its own, so that it gets exactly one signal: ours. Its stdin is our life line."""
    (data_dir / "client.json").unlink(missing_ok=True)
    life, line = os.pipe()
    command = [DRUMLINE, "up", "--data-dir", str(data_dir), "--port", str(port), "--parent-fd", str(life)]
    command += ["--cpu-devices", str(cpu_devices)]
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
    """How many devices a run may have: those that the worker of `up` registered. 0 where that came to nothing."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if up.poll() is not None:
            return 0
        if (data_dir / "client.json").exists() and (devices := _devices(data_dir)):
            return devices
        time.sleep(0.1)
    print(f"No worker registered its devices within {READY_S:.0f} s; see {data_dir / 'logs'}", file=sys.stderr)
    return 0


def _devices(data_dir: Path) -> int:
    """Of all live hosts, on the platform that runs prefer; busy ones count: a run that waits for them says so itself.

    0 while the server is away.
    """
    from drumline import Client
    from drumline.errors import DrumlineError

    os.environ["DRUMLINE_DATA_DIR"] = str(data_dir)
    try:
        with Client() as client:
            live = {host.id for host in client.hosts() if host.state == "live"}
            platforms = [device.platform for device in client.devices() if device.host in live]
    except DrumlineError:
        return 0
    return next((count for name in ("tpu", "gpu", "cpu") if (count := platforms.count(name))), 0)


def _submit_digits(up: subprocess.Popen[bytes], data_dir: Path, replicas: int) -> int:
    """Exit code of the submission, which follows the run; not that long where nobody is left to run it."""
    digits = str(ROOT / "examples" / "digits.py")
    submission = _begin(data_dir, "submit", digits, "--replicas", str(replicas))
    seen_at = time.monotonic()
    while True:
        try:
            return submission.wait(LOOK_EVERY_S)
        except subprocess.TimeoutExpired:
            pass
        if up.poll() is None and _devices(data_dir):
            seen_at = time.monotonic()
        elif up.poll() is not None or time.monotonic() - seen_at > ALONE_S:
            submission.terminate()
            submission.wait()
            print(f"Nobody is left to run it; see {data_dir / 'logs'}", file=sys.stderr)
            return up.poll() or 1


def _newest_run(data_dir: Path) -> str:
    from drumline import Client

    os.environ["DRUMLINE_DATA_DIR"] = str(data_dir)
    return next(iter(Client().list())).id


def _drumline(data_dir: Path, *arguments: str) -> int:
    """Exit code of the CLI. Ctrl-C goes to `up`; the CLI then sees the run end."""
    return _begin(data_dir, *arguments).wait()


def _begin(data_dir: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([DRUMLINE, *arguments], env={**os.environ, "DRUMLINE_DATA_DIR": str(data_dir)})


if __name__ == "__main__":
    sys.exit(main())
