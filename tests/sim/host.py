"""A host: its clocks, its disk, its shims and its agent."""

import contextvars
import itertools
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from drumline.contracts.base import from_micros
from drumline_worker.host.system import host_clock
from sim.agent import Agent, SimLayout
from sim.network import Line
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

    # its clock, as `drumline_worker.host.system` asks it

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
