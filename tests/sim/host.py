"""A host: its clocks, its disk, its shims, and an agent made of the real session, members and telemetry sender."""

import asyncio
import contextlib
import contextvars
import itertools
import math
import shutil
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import httpx2

from drumline.contracts.base import from_micros
from drumline.contracts.worker_api import DeviceReport, HeartbeatReply, Register, Registered
from drumline_worker.agent.agent_context import AgentContext, Layout
from drumline_worker.agent.api import Api, RefusedError, UnreachableError, _error
from drumline_worker.agent.bundles import BundleUnavailableError
from drumline_worker.agent.compile_cache import CompiledEntries
from drumline_worker.agent.launcher_client import LaunchError
from drumline_worker.agent.maintenance import end_strays, find_members
from drumline_worker.agent.member_registry import MemberRegistry
from drumline_worker.agent.registration import Registration, SupersededError
from drumline_worker.host.clock import host_clock
from drumline_worker.host.launcher_messages import Launched
from drumline_worker.host.rundir import RunDirectory
from sim.network import Line, Request, UnansweredError
from sim.process import Process
from sim.server import START_US
from sim.shim import Shim

if TYPE_CHECKING:
    from sim.world import World

_BOOTED_S = 10.0
"""What the boot clock shows when the agent could first start."""


class Host:
    """One machine. Its clock may run a little fast or slow, and its wall clock may be anything."""

    def __init__(self, world: "World", name: str, host_id: str, devices: int, root: Path) -> None:
        self.world = world
        self.name = name
        self.host_id = host_id
        self.devices = devices
        self.line = Line(name)
        self.layout = SimLayout(root, self)
        self.rate = 1.0
        self.wall_offset_s = 0.0
        self.frozen = False
        self.gone = False
        self.retired = False
        """Whether its agent had to make way for another machine's."""
        self.knows_its_place = True
        self.server_heard_at = 0.0
        """True time at which a server last renewed its lease."""
        self.shims: dict[str, Shim] = {}
        self.agent: Agent | None = None
        self._boot_name, self._boot_number = name, 0
        self._boots = itertools.count(1)
        self._pids = itertools.count(1 + len(world.hosts) * 1_000_000)
        self._stalled: list[Callable[[], None]] = []
        self._boot()
        with_context = contextvars.copy_context()
        with_context.run(host_clock.set, self)
        self.context = with_context
        self.layout.create()

    # its clock, as `drumline_worker.host.clock` asks it

    def boottime(self) -> float:
        return (self.world.timeline.now - self._booted_at) * self.rate + _BOOTED_S

    def true_time(self, boottime: float) -> float:
        """When its boot clock showed that."""
        return self._booted_at + (boottime - _BOOTED_S) / self.rate

    def now(self) -> datetime:
        return from_micros(START_US) + timedelta(seconds=self.world.timeline.now + self.wall_offset_s)

    def boot_id(self) -> str:
        return f"{self._boot_name}-{self._boot_number}"

    def place(self) -> str:
        """As its agent tells it."""
        return f"place of {self.name}" if self.knows_its_place else ""

    def has_booted(self, boot_id: str) -> bool:
        """Whether that was a boot of this machine."""
        return boot_id.startswith(f"{self._boot_name}-")

    def share_boot(self, other: "Host") -> None:
        """They are two data directories of one machine."""
        self._boot_name, self._boots, self._boot_number = other._boot_name, other._boots, other._boot_number

    def _boot(self) -> None:
        self._boot_number = next(self._boots)
        self._booted_at = self.world.timeline.now

    # its processes

    def run(self, fn: Callable[[], None]) -> None:
        """Runs code of a process of this host that has no loop of its own."""
        self.context.copy().run(fn)

    def later(self, seconds: float, fn: Callable[[], None]) -> None:
        """A timer on the host's clock; it is late where the host is frozen, and lost when it reboots."""
        boot = self._boot_number

        def fire() -> None:
            if boot != self._boot_number:
                return
            if self.frozen:
                self._stalled.append(fire)
            else:
                self.run(fn)

        self.world.timeline.after(seconds / self.rate, fire)

    def next_pid(self) -> int:
        return next(self._pids)

    def start_agent(self) -> None:
        """A fresh agent, as its supervisor starts it."""
        if self.agent is None and not (self.gone or self.retired):
            self.world.timeline.note(self.name, "agent starts")
            self.agent = Agent(self)

    def kill_agent(self, restart_s: float) -> None:
        """kill -9 of the agent; its launcher goes with it, the shims stay."""
        if self.agent is not None:
            self.world.timeline.note(self.name, "agent is killed")
            self.agent.process.kill()
            self.agent = None
        self.later(restart_s, self.start_agent)

    def retire_agent(self) -> None:
        """The agent ends for good: another machine has the identity."""
        if self.agent is not None:
            self.world.timeline.note(self.name, "agent makes way")
            self.agent.process.kill()
        self.agent, self.retired = None, True

    def freeze(self, seconds: float) -> None:
        """The whole machine stands still; only its boot clock goes on."""
        if self.frozen:
            return
        self.world.timeline.note(self.name, f"freezes for {seconds:.0f} s")
        self.frozen = True
        if self.agent is not None:
            self.agent.process.freeze()
        self.world.timeline.after(seconds, self.thaw)

    def thaw(self) -> None:
        """Every process goes on. The first thing that a shim does is look at its deadline."""
        if not self.frozen:
            return
        self.world.timeline.note(self.name, "thaws")
        self.frozen = False
        for shim in list(self.shims.values()):
            self.run(shim.act)
        self.world.truth.check_overlap()
        stalled, self._stalled = self._stalled, []
        for fire in stalled:
            self.world.timeline.soon(fire)
        if self.agent is not None:
            self.agent.process.thaw()

    def reboot(self, seconds: float) -> None:
        """Power off and on: only the disk is left."""
        self.world.timeline.note(self.name, f"reboots, back in {seconds:.0f} s")
        if self.agent is not None:
            self.agent.process.kill()
            self.agent = None
        for shim in list(self.shims.values()):
            shim.kill()
        orphans = self.world.truth.orphans
        for member in [member for member, shim in orphans.items() if shim.host is self]:
            del orphans[member]
        self.frozen = False
        self._stalled.clear()
        self._boot()
        self.later(seconds, self.start_agent)

    def lose_disk(self) -> None:
        """Power off, and back with an empty disk."""
        self.reboot(5.0)
        self.world.timeline.note(self.name, "lost its disk")
        for path in self.layout.runs.iterdir():
            shutil.rmtree(path)

    def go(self) -> None:
        """It never comes back."""
        self.reboot(0.0)
        self.world.timeline.note(self.name, "is gone for good")
        self.gone = True

    def shim_is_gone(self, shim: Shim) -> None:
        """Its process has ended, and so has all that it started, unless something hangs in the kernel."""
        del self.shims[shim.member]
        shim.dead_and_reaped = not shim.program.leaves_orphans
        if self.agent is not None:
            self.agent.launcher.note_gone(shim)

    def processes(self) -> list[tuple[int, str]]:
        """Pids, and the members that they belong to."""
        orphans = [shim for shim in self.world.truth.orphans.values() if shim.host is self]
        return [(shim.pid, shim.member) for shim in (*self.shims.values(), *orphans)]

    def kill(self, pid: int) -> None:
        """SIGKILL, which does nothing to what hangs in the kernel."""
        for shim in [shim for shim in self.shims.values() if shim.pid == pid]:
            self.world.invariants.check_unwanted(shim)
            shim.kill()

    def hear(self) -> bool:
        """The Celery child takes a notification; False where none listens."""
        agent = self.agent
        if agent is None or not agent.listens or self.frozen:
            return False
        agent.process.post(agent.registration.notify)
        agent.answers.expect()
        return True

    def wipe(self) -> None:
        """After the history."""
        shutil.rmtree(self.layout.root, ignore_errors=True)


class SimLayout(Layout):
    """A data directory whose shims listen on simulated sockets."""

    def __init__(self, root: Path, host: Host) -> None:
        super().__init__(root)
        object.__setattr__(self, "host", host)

    def run_directory(self, member: str) -> RunDirectory:
        return SimRunDirectory(self.runs / member, cast("Host", self.host))  # type: ignore[attr-defined] # set above


class SimRunDirectory(RunDirectory):
    """A run directory on a real disk."""

    def __init__(self, path: Path, host: Host) -> None:
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

    def __init__(self, host: Host) -> None:
        self.host = host
        self.process = host.world.add_process(f"{host.name}.agent", host.context)
        self.is_registered = self.listens = False
        """Whether its Celery child does."""
        self.answers = Answers(self)
        self.launcher = SimLauncher(host, self.process)
        api = SimApi(host, self.process)
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
        found = list(find_members(layout, introduction.place))
        adopted = {order.claimed.member for order in found}
        unproven = await end_strays(layout.runs, lambda member: member not in adopted)
        introduction = introduction.model_copy(update={"unproven": tuple(unproven)})
        self.registration = SimRegistration(api, introduction, self._refused, self.answers)
        bundles, launcher = cast(Any, SimBundles(self.host)), cast(Any, self.launcher)
        meeting = cast(Any, SimMeetingPlace)
        compiled = CompiledEntries(layout.compiled_entries)
        place = introduction.place
        self.members = SimMembers(
            AgentContext(
                api, self.registration, launcher, bundles, layout, layout.checkpoints, meeting, compiled, place
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
        has_work = super().apply_reply(reply)
        if has_work:
            self._answers.take_on()
        return has_work


class SimApi(Api):
    """The worker's client on the simulated network."""

    def __init__(self, host: Host, process: Process) -> None:
        self._host = host
        self._process = process

    async def _send(self, path: str, body: bytes, headers: dict[str, str] | None = None) -> bytes:
        del headers
        request = Request(f"/worker{path}", body, self._host.host_id)
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

    def __init__(self, host: Host, process: Process) -> None:
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

    def __init__(self, host: Host) -> None:
        self._host = host

    async def extract(self, sha256: str, target: Path) -> None:
        """Raises BundleUnavailableError, now and then."""
        timeline = self._host.world.timeline
        await asyncio.sleep(timeline.rng.uniform(0.01, 1.5))
        if timeline.chance(self._host.world.faults.failed_launches):
            raise BundleUnavailableError("made up")
