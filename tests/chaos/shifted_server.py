"""`drumline`, with the server's wall clock off by the seconds that the file DRUMLINE_CHAOS_OFFSET holds now."""

import os
from pathlib import Path

from drumline.cli.main import main
from drumline_server.base.settings import SystemClock

_OFFSET = Path(os.environ["DRUMLINE_CHAOS_OFFSET"])
_now = SystemClock.now


def _shifted(self: SystemClock) -> int:
    return _now(self) + int(float(_OFFSET.read_text()) * 1_000_000)


SystemClock.now = _shifted  # type: ignore[method-assign]  # the fault

if __name__ == "__main__":
    main()
