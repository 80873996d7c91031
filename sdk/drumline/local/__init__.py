"""Runs a program without any server: the same `main`, the same strategies, on this machine's devices.

    if __name__ == "__main__":
        import drumline.local

        drumline.local.run(main)

Then `python digits.py --replicas 8 --epochs 5`. Needs `pip install 'drumline[jax]'`.
"""

import drumline.distribute  # noqa: F401 - first: it names the extra that is missing
from drumline.local.command import run
from drumline.local.results import json_result
from drumline.local.stop_request import on_sigterm
from drumline.local.strategies import build_strategy

__all__ = ["build_strategy", "json_result", "on_sigterm", "run"]
