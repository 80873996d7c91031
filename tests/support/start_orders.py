"""Plans as a worker leaves them for shims."""

from drumline.contracts.base import new_id
from drumline.contracts.worker_api import Claimed
from drumline_worker.host.rundir import StartOrder


def start_order(member: str, *, location: str = "here", boot: str = "boot") -> StartOrder:
    """A start order for one replica of digits."""
    claimed = {
        "member": member, "attempt": new_id("att"), "run": new_id("run"), "version": new_id("ver"), "fence": 1,
        "job_name": "digits", "attempt_number": 1, "bundle": "sha256:" + "ab" * 32, "entrypoint": "digits:main",
        "strategy": {"kind": "mirrored"}, "record": {}, "checkpoint": {}, "parameters": {}, "limits": {},
        "replicas": 1, "devices": (), "rendezvous": {"rank": 0, "size": 1}, "cancel": False,
    }  # fmt: skip
    return StartOrder(
        claimed=Claimed.model_validate(claimed),
        compile_cache="",
        checkpoints="",
        takeover_s=120.0,
        alive_at=0.0,
        boot_id=boot,
        location=location,
    )
