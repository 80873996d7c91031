"""The user: submits under keys until acknowledged, and changes their mind."""

import asyncio
import json
from typing import TYPE_CHECKING, cast

from drumline.contracts.spec import RunSubmit
from sim.network import Answer, Line, Request, UnansweredError
from sim.program import ENDLESS
from support.core import GANG, submission_body

if TYPE_CHECKING:
    from sim.world import World

_AGAIN_S = 2.0


class User:
    """Journals what was acknowledged, as the chaos tests' client does."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._process = world.add_process("user")
        self._line = Line("user")
        self.acknowledged: dict[str, str] = {}
        """Run ids by key."""
        self.keys_used = 0
        self.wants_stopped: set[int] = set()
        """Runs that never end by themselves: cancelled in the end."""

    def submit(self, number: int, body: RunSubmit) -> None:
        """Sends it again and again, under one key."""
        self.keys_used += 1
        if body.limits.run_s is None and cast(int, body.parameters["epochs"]) >= ENDLESS:
            self.wants_stopped.add(number)
        self._process.start(lambda: self._submit(f"key-{number}", body.model_dump_json().encode()))

    def cancel(self, number: int, grace_s: float | None) -> None:
        """Asks for the end of a run that was acknowledged."""
        run_id = self.acknowledged.get(f"key-{number}")
        if run_id is not None:
            self._world.timeline.note("user", f"cancels {run_id[-6:]}")
            body = json.dumps({"grace_s": grace_s}).encode()
            request = Request(f"/runs/{run_id}:cancel", body)
            self._process.start(lambda: self._until_answered(request))

    async def _submit(self, key: str, body: bytes) -> None:
        answer = await self._until_answered(Request("/runs", body, key=key))
        run_id = json.loads(answer.body)["run"]["id"]
        if self.acknowledged.setdefault(key, run_id) != run_id:
            self._world.violation(f"{key} was answered with {self.acknowledged[key]} and with {run_id}")
        self._world.timeline.note("user", f"{key} is {run_id[-6:]}")

    async def _until_answered(self, request: Request) -> Answer:
        while True:
            try:
                answer = await self._world.network.send(self._process, self._line, request)
            except UnansweredError:
                await asyncio.sleep(_AGAIN_S)
                continue
            if answer.status < 500:
                return answer
            await asyncio.sleep(_AGAIN_S)


def body_of(number: int, replicas: int, user_retries: int, run_limit_s: float | None, *, endless: bool) -> RunSubmit:
    """The n-th run of a history; its number tells the host which program to make up."""
    return submission_body(
        job=GANG,
        parameters={"epochs": number + (ENDLESS if endless else 0)},
        resources={"replicas": replicas},
        retries={"user": user_retries, "infrastructure": 3},
        limits={"run_s": run_limit_s, "grace_s": 6.0},
        wait_for_devices=True,
    )
