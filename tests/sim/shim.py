"""A shim and its runner: the real stopper, journal, spool, verdict and run directory around a made-up program."""

import asyncio
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from drumline.contracts.reasons import EndReason
from drumline_worker.host.messages import (
    Acked,
    Alive,
    Decoder,
    Ended,
    Failure,
    FromAgent,
    Spooled,
    Stop,
    StopCause,
    Wish,
    encode_payload,
)
from drumline_worker.host.rundir import Ending, RunDirectory, ShimIdentity
from drumline_worker.host.spool import SpoolWriter
from drumline_worker.host.system import boottime, now
from drumline_worker.shim.ending import Evidence, judge, too_late
from drumline_worker.shim.journal import Journal
from drumline_worker.shim.stopping import Action, Stopper
from sim.process import Process
from sim.program import Program, program_of

if TYPE_CHECKING:
    from sim.host import Host

PROGRESS_S = 15.0
MEET_S = 1.0
HANG_S = 8.0
_AFTER_S = 1e-6
"""So much after its deadline a shim looks, as clocks that run fast or slow round."""


class Shim:
    """One member's keeper on a host. Its methods run in the context of the host's clock."""

    def __init__(self, host: "Host", directory: RunDirectory) -> None:
        self.host = host
        self.directory = directory
        self.order = directory.order()
        self.member = self.order.claimed.member
        self.alive = True
        self.dead_and_reaped = False
        """Whether nothing of it is left, descendants included."""
        self.out_of_sight = False
        """Whether its host has moved to another machine since, where its devices are others."""
        self._spool = SpoolWriter(directory.spool)
        self._journal = Journal(self._spool)
        self._stopper = Stopper(self.order.lease, self.order.alive_at)
        self._wires: list[Wire] = []
        self._failure: Failure | None = None
        self._has_result = False
        claimed = self.order.claimed
        run_number = int(str(claimed.parameters["epochs"]))
        self.program: Program = program_of(host.world.seed, run_number, claimed.attempt_number, claimed.rendezvous.rank)
        self.running = False
        self.completed = False
        self.pid = host.next_pid()
        self.has_begun = directory.begin(ShimIdentity(pid=self.pid, start_ticks=1, started_at=now()))
        if not self.has_begun:
            return
        ending = too_late(self._stopper, boottime())
        if ending is not None:
            self.directory.write_ending(ending)
            self._later(0.0, self._go)
            return
        self._journal.record("state", phase="starting")
        self.running = True
        host.world.truth.begins(self)
        self._later(self.program.load_s, self._enter_loop)
        self._arm()

    @property
    def devices(self) -> frozenset[str]:
        """Ids of the devices that its runner has open."""
        return frozenset(device.device for device in self.order.claimed.devices)

    # the program

    def _enter_loop(self) -> None:
        """All members of a gang meet first."""
        truth = self.host.world.truth
        if not self.running:
            return
        if not truth.meets(self):
            self._later(MEET_S, self._enter_loop)
        else:
            self._journal.record("state", phase="running")
            self._tell()
            self._later(self.program.run_s, self._come_to_end)
            self._later(PROGRESS_S, self._progress)

    def _progress(self) -> None:
        if self.running:
            self._journal.record("progress", step=int(self.host.world.timeline.now))
            self._tell()
            self._later(PROGRESS_S, self._progress)

    def _come_to_end(self) -> None:
        if not self.running:
            return
        if self.program.succeeds:
            self._journal.record("result", value=self.order.claimed.attempt)
            self._has_result = True
        elif self.program.fails_with is not None:
            self._failure = Failure.model_validate({"reason": self.program.fails_with, "message": "made up"})
        self._runner_dies(self.program.signal or self.program.exit_code << 8)

    def _heed(self) -> None:
        if self.running:
            self._failure = Failure(reason=EndReason.CANCELLED, message="stopping")
            self._runner_dies(1 << 8)

    def lose_peer(self) -> None:
        """JAX aborts the others some time after one is gone."""
        self._later(self.host.world.timeline.rng.uniform(5.0, 12.0), lambda: self.kill_runner(signal.SIGABRT))

    def kill_runner(self, number: int) -> None:
        """A signal from inside or outside."""
        if self.running and (number != signal.SIGTERM or self.program.heeds_term):
            self._runner_dies(number)

    def _runner_dies(self, wait_status: int) -> None:
        self.running = False
        self.completed = wait_status == 0 and self._has_result
        self.host.world.truth.ends(self)
        self._orphan()
        rng = self.host.world.timeline.rng
        self._later(
            rng.uniform(0.01, 0.2) if not self.program.leaves_orphans else 10.0, lambda: self._finish(wait_status)
        )

    # the shim

    def act(self) -> None:
        """What the stopper says is due: before anything else, also after a freeze of the host."""
        while self.alive and (due := self._stopper.due(boottime())) is not None:
            action, cause = due
            self.host.world.timeline.note(self.member[-6:], f"{action} {cause}")
            if action is Action.ASK:
                if self.program.heeds_request_s is not None:
                    self._later(self.program.heeds_request_s, self._heed)
            elif action is not Action.DUMP:
                self.kill_runner(signal.SIGTERM if action is Action.TERM else signal.SIGKILL)
        self._arm()

    def kill(self) -> None:
        """kill -9 of the shim: the runner dies with it, and the launcher ends what is left."""
        if self.alive:
            self._go()
            if self.running:
                self.running = False
                self.host.world.truth.ends(self)
                self._orphan()

    def _orphan(self) -> None:
        """What the program leaves behind hangs in the kernel for a while, with the devices open."""
        orphans = self.host.world.truth.orphans

        def end() -> None:
            orphans.pop(self.member, None)

        if self.program.leaves_orphans:
            orphans[self.member] = self
            self.host.later(self.host.world.timeline.rng.uniform(15.0, 90.0), end)

    def join(self, process: Process, protocol: asyncio.BaseProtocol) -> "Wire":
        """An agent connects."""
        wire = Wire(self, process, protocol)
        self._wires.append(wire)
        self._tell()
        return wire

    def obey(self, message: Wish) -> None:
        """What `drumline_worker.shim.shim` does with it."""
        if not self.alive:
            return
        if isinstance(message, Alive):
            self.host.world.invariants.check_lease(self, message.sent_at)
            self._stopper.extend(min(message.sent_at, boottime()))
        elif isinstance(message, Stop) and message.cause is StopCause.HANG:
            self._stopper.hang(boottime(), HANG_S)
        elif isinstance(message, Stop):
            self._stopper.stop(message.cause, message.grace_s, boottime())
        elif isinstance(message, Acked):
            self._spool.trim(message.seq)
        self.act()

    def _finish(self, wait_status: int) -> None:
        if not self.alive:
            return
        verdict = judge(
            Evidence(
                wait_status=wait_status,
                has_result=self._has_result,
                failure=self._failure,
                stopper=self._stopper,
                out_of_memory=False,
            )
        )
        ending = Ending(
            reason=verdict.reason,
            message=verdict.message,
            exit_code=verdict.exit_code,
            signal=verdict.signal,
            last_seq=self._journal.last_seq,
            ended_at=now(),
            devices_released=not self.program.leaves_orphans,
        )
        self._spool.close()
        self.directory.write_ending(ending)
        for wire in self._wires:
            wire.tell(Ended(ending=ending))
        self._go()

    def _go(self) -> None:
        self.alive = False
        self._spool.close()
        self.host.shim_is_gone(self)
        for wire in self._wires:
            wire.hang_up()

    def _tell(self) -> None:
        for wire in self._wires:
            wire.tell(Spooled(seq=self._journal.last_seq))

    def _arm(self) -> None:
        due = self._stopper.next_at()
        if due is not None and self.running:
            self._later(max(0.0, due - boottime()) + _AFTER_S, self._look_at_deadline)

    def _look_at_deadline(self) -> None:
        due = self._stopper.next_at()
        if due is not None and due <= boottime():
            self.act()

    def _later(self, seconds: float, fn: Callable[[], None]) -> None:
        """On the host's clock, and only while it and the shim live."""
        self.host.later(seconds, lambda: fn() if self.alive else None)


class Wire(asyncio.Transport):
    """The unix socket between a shim and one agent, from the agent's side."""

    def __init__(self, shim: Shim, process: Process, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self._shim = shim
        self._process = process
        self._protocol: Any = protocol
        self._decoder = Decoder()
        self._open = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        raw = bytes(data)
        self._shim.host.later(0.0005, lambda: self._arrive(raw))

    def _arrive(self, raw: bytes) -> None:
        for payload in self._decoder.feed(raw):
            self._shim.obey(FromAgent.validate_json(payload))

    def tell(self, message: Spooled | Ended) -> None:
        """The shim says something."""
        raw = encode_payload(message.model_dump_json().encode())
        self._process.post(lambda: self._protocol.data_received(raw) if self._open else None)

    def hang_up(self) -> None:
        """The shim is gone."""
        self._process.post(self._lose)

    def close(self) -> None:
        if self._open:
            self._process.post(self._lose)

    def is_closing(self) -> bool:
        return not self._open or not self._process.alive

    def _lose(self) -> None:
        if self._open:
            self._open = False
            self._protocol.connection_lost(None)
