"""What the agent makes of the server's answers."""

import asyncio
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from drumline.contracts.base import new_id
from drumline.contracts.worker_api import Claim, Claimed
from drumline_worker.agent.api import Api, MemberKeys
from support.edge import EdgeServer
from support.layer import ok


def claimed_by_a_newer_server(member: str) -> dict[str, Any]:  # Any: JSON
    """An answer to a claim with fields that this version does not know, at the top and deep inside."""
    return {
        "member": member,
        "attempt": new_id("att"),
        "run": new_id("run"),
        "version": new_id("ver"),
        "job_name": "digits",
        "fence": 1,
        "attempt_number": 1,
        "bundle": "sha256:" + "ab" * 32,
        "entrypoint": "digits:main",
        "strategy": {"kind": "mirrored", "invented": 1},
        "record": {"invented": 2},
        "checkpoint": {},
        "parameters": {},
        "limits": {"grace_s": 7, "invented_s": 3},
        "replicas": 1,
        "devices": [],
        "rendezvous": {"rank": 0, "size": 1},
        "cancel": False,
        "invented": True,
    }


def test_worker_reads_the_answers_of_a_newer_server(layered: EdgeServer, tmp_path: Path) -> None:
    """P18: server N and worker N-1 talk to each other."""
    member = new_id("mem")
    layered.layer.answer_instead("POST", f"/worker/members/{member}/claim", ok(claimed_by_a_newer_server(member)))

    async def claim(url: str) -> Claimed:
        api = Api(url, trust_env=False, keys=MemberKeys(tmp_path))
        api.use_token(SecretStr(layered.admin_token))
        try:
            return await api.claim(member, Claim(incarnation=new_id("inc"), fence=1))
        finally:
            await api.close()

    claimed = asyncio.run(claim(layered.url))

    assert claimed.limits.grace_s == 7
