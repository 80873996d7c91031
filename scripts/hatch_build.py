"""Hatch build hook: puts the built dashboard into the wheel as `drumline_server/static`."""

import os
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class DashboardHook(BuildHookInterface[Any]):
    """Builds the dashboard unless it is there already; an editable install serves `frontend/dist` and needs nothing."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or os.environ.get("DRUMLINE_SKIP_FRONTEND") == "1":
            return
        frontend = Path(self.root, "frontend")
        dist = frontend / "dist"
        if not (dist / "index.html").exists():
            subprocess.run(["npm", "ci", "--ignore-scripts"], cwd=frontend, check=True)
            subprocess.run(["npm", "run", "build"], cwd=frontend, check=True)
        if self.target_name == "wheel":
            build_data["force_include"][str(dist)] = "drumline_server/static"
