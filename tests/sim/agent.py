"""A host's agent: the real session, members and telemetry sender on a simulated network."""

import asyncio
import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import httpx2

from drumline.contracts.worker_api import KEY_HEADER, DeviceReport, HeartbeatReply, Register, Registered
from drumline_worker.agent.agent_context import AgentContext, Layout
from drumline_worker.agent.api import Api, MemberKeys, RefusedError, UnreachableError, _error
from drumline_worker.agent.host_cache import BundleUnavailableError, CompiledEntries
from drumline_worker.agent.links import LaunchError
from drumline_worker.agent.maintenance import end_strays, find_members
from drumline_worker.agent.member_registry import MemberRegistry
from drumline_worker.agent.registration import Registration, SupersededError
from drumline_worker.host.messages import Launched
from drumline_worker.host.rundir import RunDirectory, StartOrder
from sim.network import Request, UnansweredError
from sim.process import Process
from sim.shim import Shim

if TYPE_CHECKING:
    from sim.host import Host


class SimLayout(Layout):
    """A data directory whose shims listen on simulated sockets."""

    def __init__(self, root: Path, host: "Host") -> None:
        super().__init__(root)
        object.__setattr__(self, "host", host)

    def run_directory(self, member: str) -> RunDirectory:
        return SimRunDirectory(self.runs / member, cast("Host", self.host))  # type: ignore[attr-defined] # set above


class SimRunDirectory(RunDirectory):
    """A run directory on a real disk."""

    def __init__(self, path: Path, host: "Host") -> None:
        super().__init__(path)
        self._host = host

    def connect(self) -> Any:
        shim = self._host.shims.get(self.path.name)
        if shim is None:
            raise ConnectionRefusedError(f"nobody listens in {self.path}")
        return shim

    def is_attended(self) -> bool:
        return self.path.name in self._host.shims


class Agent:
    """The agent's process, put together as `drumline_worker.agent.agent` does."""

    def __init__(self, host: "Host") -> None:
        self.host = host
        self.process = host.world.add_process(f"{host.name}.agent", host.context)
        self.is_registered = self.listens = False
        """Whether its Celery child does."""
        self.answers = Answers(self)
        self.launcher = SimLauncher(host, self.process)
        self.keys = MemberKeys(host.layout.keys)
        api = SimApi(host, self.process, self.keys)
        devices = tuple(
            DeviceReport.model_validate({"platform": "cpu", "index": index, "kind": "simulated"})
            for index in range(host.devices)
        )
        introduction = Register(
            name=host.name,
            boot_id=host.boot_id(),
            place=host.place(),
            version="0",
            jax_version="0",
            cpu_count=1,
            memory_bytes=1,
            devices=devices,
        )
        self.process.start(lambda: self._serve(api, introduction))

    async def _serve(self, api: Api, introduction: Register) -> None:
        await asyncio.sleep(self.host.world.timeline.rng.uniform(0.5, 2.0))
        layout = self.host.layout
        found = [order for order in find_members(layout, introduction.place) if self._may_speak_for(order)]
        adopted = {order.claimed.member for order in found}
        self.keys.keep_only(adopted)
        unproven = await end_strays(layout.runs, lambda member: member not in adopted)
        introduction = introduction.model_copy(update={"unproven": tuple(unproven)})
        self.registration = SimRegistration(api, introduction, self._refused, self.answers)
        bundles, launcher = cast(Any, SimBundles(self.host)), cast(Any, self.launcher)
        meeting = cast(Any, SimMeetingPlace)
        compiled = CompiledEntries(layout.compiled_entries)
        place = introduction.place
        self.members = SimMembers(
            AgentContext(
                api,
                self.registration,
                launcher,
                bundles,
                layout,
                layout.checkpoints,
                meeting,
                compiled,
                place,
                self.keys,
            ),
            self.answers,
        )
        for order in found:
            self.members.adopt(order)
        try:
            await self.registration.run(self.members, self._use)
        except SupersededError:
            self.listens = False  # it asks nothing any more
            await self.members.kill(8.0)
            await self.members.wait_for_reports(1.0)
            self.host.retire_agent()

    def _may_speak_for(self, order: StartOrder) -> bool:
        return not order.has_key or self.keys.find(order.claimed.member) is not None

    def drain(self) -> None:
        """SIGTERM: no new work, everything asked to stop, then the agent ends and comes back."""
        if self.is_registered:
            self.host.world.timeline.note(self.host.name, "drains")
            self.process.start(self._wind_down)

    async def _wind_down(self) -> None:
        self.registration.drain()
        await self.members.drain()
        await self.registration.until_drain_is_known(1.0)
        if self.host.agent is self:
            self.host.kill_agent(self.host.world.timeline.rng.uniform(1.0, 10.0))

    async def _refused(self, error: RefusedError) -> None:
        self.host.world.timeline.note(self.host.name, f"refused: {error}")

    def _use(self, _: Registered) -> None:
        """The Celery child begins with the first registration."""
        if not self.is_registered:
            self.is_registered = True
            self.process.loop.call_later(self.host.world.timeline.rng.uniform(0.5, 3.0), self._listen)

    def _listen(self) -> None:
        self.host.world.broker.purge(self.host.host_id)
        self.listens = True
        self.registration.notify()


class Answers:
    """Watches that each notification is answered by a heartbeat, and that they bring no flood of them."""

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent
        self._asked = 0
        """Requests to register and to beat that were sent."""
        self._under_way = 0
        self._idle_at = -math.inf
        """When the last early heartbeat was sent that has brought no work."""

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """A registration or a heartbeat is under way."""
        self._asked += 1
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    def expect(self) -> None:
        """A notification has come: whatever is in nobody's way is asked within a second."""
        asked, host, process = self._asked, self._agent.host, self._agent.process
        if self._under_way or process.frozen:
            return

        def look() -> None:
            serves = host.agent is self._agent and self._agent.listens
            if serves and self._asked == asked and not (host.frozen or process.stood_still_since(began)):
                host.world.violation(f"{host.name} had a notification and did not ask what is new")

        began = host.world.timeline.now
        host.world.timeline.after(1.05, look)

    def beat_early(self) -> None:
        """A notification brings a heartbeat."""
        now = self._agent.host.world.timeline.now
        if now < self._idle_at + 1.0 - 1e-6:
            self._agent.host.world.violation(f"{self._agent.host.name} beat early twice in a second, for nothing")
        self._idle_at = now

    def refuse(self, detail: str) -> None:
        """Every agent has the keys of its members."""
        self._agent.host.world.violation(f"{self._agent.host.name} is not heard: {detail}")

    def take_on(self) -> None:
        """A heartbeat brought work."""
        self._idle_at = -math.inf


class SimRegistration(Registration):
    """The real one, watched."""

    def __init__(self, api: Api, introduction: Register, refused: Any, answers: Answers) -> None:
        super().__init__(api, introduction, refused)
        self._answers = answers

    def _send_early_heartbeat(self) -> None:
        self._answers.beat_early()
        super()._send_early_heartbeat()


class SimMembers(MemberRegistry):
    """The real ones, watched."""

    def __init__(self, context: AgentContext, answers: Answers) -> None:
        super().__init__(context)
        self._answers = answers

    def apply_reply(self, reply: HeartbeatReply) -> bool:
        for refusal in reply.refused:
            self._answers.refuse(refusal.detail)
        has_work = super().apply_reply(reply)
        if has_work:
            self._answers.take_on()
        return has_work


class SimApi(Api):
    """The worker's client on the simulated network."""

    def __init__(self, host: "Host", process: Process, keys: MemberKeys) -> None:
        self._host = host
        self._process = process
        self._keys = keys

    async def _send(self, path: str, body: bytes, headers: dict[str, str] | None = None) -> bytes:
        member_key = (headers or {}).get(KEY_HEADER)
        request = Request(f"/worker{path}", body, self._host.host_id, member_key=member_key)
        agent = self._host.agent
        is_asking = agent is not None and agent.process is self._process and path in ("/register", "/heartbeat")
        try:
            with agent.answers.asking() if agent and is_asking else contextlib.nullcontext():
                answer = await self._host.world.network.send(self._process, self._host.line, request)
        except UnansweredError as error:
            raise UnreachableError(str(error)) from None
        if answer.status >= 400:
            raise _error(httpx2.Response(answer.status, content=answer.body, headers=answer.headers))
        return answer.body


class SimLauncher:
    """Forks shims. What it knows of them goes with it."""

    def __init__(self, host: "Host", process: Process) -> None:
        self._host = host
        self._process = process
        self._gone: dict[str, asyncio.Event] = {}

    async def until_ready(self) -> None:
        """It always is."""

    async def start(self, member: str, directory: Path) -> Launched:
        """Raises LaunchError, now and then."""
        timeline = self._host.world.timeline
        self._gone[member] = asyncio.Event()
        await asyncio.sleep(timeline.rng.uniform(0.005, 0.05))
        if timeline.chance(self._host.world.faults.failed_launches):
            raise LaunchError("made up: the launcher died")
        shim = Shim(self._host, SimRunDirectory(directory, self._host))
        if not shim.has_begun:
            self._gone[member].set()
            return Launched(member=member, pid=1)
        self._host.shims[member] = shim
        timeline.note(self._host.name, f"runs {member[-6:]} of {shim.order.claimed.run[-6:]}")
        await asyncio.sleep(0.002)
        return Launched(member=member, pid=1)

    async def wait_gone(self, member: str, timeout_s: float) -> bool:
        gone = self._gone.get(member)
        if gone is None:
            return False
        try:
            async with asyncio.timeout(timeout_s):
                await gone.wait()
        except TimeoutError:
            return False
        return True

    async def try_device(self, platform: str, index: int) -> str | None:
        """Nothing is wrong with any device."""
        del platform, index
        await asyncio.sleep(self._host.world.timeline.rng.uniform(0.1, 2.0))
        return None

    def forget(self, member: str) -> None:
        self._gone.pop(member, None)

    def note_gone(self, shim: Shim) -> None:
        """The launcher ends what is left of a dead shim, then says so."""
        gone = self._gone.get(shim.member)
        if gone is not None and shim.dead_and_reaped:
            self._host.later(0.02, lambda: self._process.post(gone.set))


class SimMeetingPlace:
    """Programs meet in the truth; the address is not looked at."""

    coordinator = "simulated:1"

    def close(self) -> None:
        """Nothing is open."""


class SimBundles:
    """Programs are made up; fetching them takes a while and can fail."""

    def __init__(self, host: "Host") -> None:
        self._host = host

    async def extract(self, sha256: str, target: Path) -> None:
        """Raises BundleUnavailableError, now and then."""
        timeline = self._host.world.timeline
        await asyncio.sleep(timeline.rng.uniform(0.01, 1.5))
        if timeline.chance(self._host.world.faults.failed_launches):
            raise BundleUnavailableError("made up")
