"""The shim's loop: one thread, one selector, until the member is over; and an agent on the shim's socket.

The agent's wishes come in, news of the spool goes out.
"""

import os
import selectors
import signal
import socket
import struct
from collections.abc import Callable
from datetime import datetime
from functools import partial
from types import FrameType

from pydantic import ValidationError

from drumline.contracts.base import Contract
from drumline_worker.host.messages import (
    Alive,
    Decoder,
    Ended,
    FramingError,
    FromAgent,
    Look,
    Looked,
    PeerWaits,
    Spooled,
    Stop,
    StopCause,
    Wish,
    encode,
    encode_payload,
)
from drumline_worker.host.rundir import Ending, RunDirectory, ShimIdentity
from drumline_worker.host.spool import SpoolWriter
from drumline_worker.host.system import (
    become_subreaper,
    boottime,
    descendants,
    kill_quietly,
    now,
    reap,
    set_name,
    start_ticks,
)
from drumline_worker.shim.ending import Finish, read_traces, too_late
from drumline_worker.shim.intake import Inbox, Intake, OutputBuffer, Pump
from drumline_worker.shim.journal import LOOK_S, Journal, SpoolFullError, Timesheet
from drumline_worker.shim.runner_process import Lives, Runner, StacksLook, start_runner
from drumline_worker.shim.stopping import Action, HangWatch, Stopper
from drumline_worker.shim.usage import UsageMeter

DISK_WAIT_S = 20.0
"""How long an ended member waits for room on a full disk before it gives up what the disk did not take."""
DISK_LOOK_S = 0.2
_MAX_WAIT_S = LOOK_S
"""select sleeps on a clock that stops in suspend, so that the deadline is looked at again after this."""
_PEER = struct.Struct("3i")
_FINAL_S = 2.0


class AgentLink:
    """A connection that never blocks the shim: what can't be sent now is replaced by newer news."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket = connection
        self._decoder = Decoder()
        self._unsent = b""
        self._told: Spooled | None = None

    def receive(self) -> list[Wish] | None:
        """Messages that arrived; None when the agent hung up or talks nonsense."""
        try:
            raw = self.socket.recv(65_536)
            return [FromAgent.validate_json(payload) for payload in self._decoder.feed(raw)] if raw else None
        except BlockingIOError:
            return []
        except (OSError, FramingError, ValidationError):
            return None

    def tell(self, news: Spooled) -> bool:
        """Sends `news` unless the agent knows it or is still swallowing older news; False when it hung up."""
        if not self._unsent:
            if news == self._told:
                return True
            self._told = news
            self._unsent = _frames(news)
        try:
            self._unsent = self._unsent[self.socket.send(self._unsent) :]
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True

    def queue(self, message: Contract) -> None:
        """Sends it with what is told next; unlike news it is not replaced by what is newer."""
        self._unsent += _frames(message)

    def send_final(self, message: Contract) -> None:
        """Sends the last message, waiting for a slow agent a little: `end.json` tells it as well."""
        try:
            self.socket.settimeout(_FINAL_S)  # blocks the shim, which has nothing else left to do
            self.socket.sendall(self._unsent + _frames(message))
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            return


def accept(listener: socket.socket) -> AgentLink | None:
    """The next agent; None for another user and for the program itself, which must not steer its shim."""
    connection, _ = listener.accept()
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    pid, uid, _ = _PEER.unpack(peer)
    if uid not in (os.getuid(), 0) or pid in descendants(os.getpid()):
        connection.close()
        return None
    return AgentLink(connection)


def _frames(message: Contract) -> bytes:
    return encode_payload(message.model_dump_json().encode())


def run_shim(directory: RunDirectory, listener: socket.socket, parent_fd: int | None, lives: Lives) -> None:
    """The life of a member, in a fresh process. Returns when nothing of it is left and `end.json` says how it ended.

    `lives` are those of its children: the launcher has them imported, and the shim itself needs nothing of JAX.
    """
    os.setsid()
    become_subreaper()
    set_name("drumline-shim")
    pid = os.getpid()
    if directory.begin(ShimIdentity(pid=pid, start_ticks=start_ticks(pid) or 0, started_at=now())):
        Shim(directory, listener, parent_fd, lives).run()


class Shim:
    """Holds the runner, the spool and the deadline of one member."""

    def __init__(self, directory: RunDirectory, listener: socket.socket, parent_fd: int | None, lives: Lives) -> None:
        self._directory = directory
        self._order = directory.order()
        self._listener = listener
        self._parent_fd = parent_fd
        self._run_member = lives.run_member
        self._spool = SpoolWriter(directory.spool)
        self._journal = Journal(self._spool, self._order.spool_bytes)
        self._output = OutputBuffer()
        self._stopper = Stopper(self._order.lease, self._order.alive_at)
        self._hangs = HangWatch(directory, self._order, self._stopper, self._output, self._journal)
        claimed = self._order.claimed
        speaks = claimed.takes_programs and claimed.rendezvous.rank == 0  # all of a gang dispatch the same
        self._inbox = Inbox(self._journal, self._output, claimed.fence, self._hangs.hear, keeps_programs=speaks)
        self._read_traces = partial(read_traces, directory, self._order, lives.send_left, self._inbox)
        self._pump = Pump(self._journal, self._output)
        self._agents: list[AgentLink] = []
        self._selector = selectors.DefaultSelector()
        self._status: int | None = None
        self._runner: Runner | None = None
        self._registered = 0
        self._look: tuple[datetime, StacksLook] | None = None

    def run(self) -> None:
        """Starts the runner unless it is too late, looks after it, finishes."""
        ending = too_late(self._stopper, boottime()) or self._supervise()
        try:
            self._spool.close()  # first: who finds end.json reads the spool up to its last_seq
            self._directory.write_ending(ending)
        finally:
            for agent in self._agents:
                agent.send_final(Ended(ending=ending))

    def _supervise(self) -> Ending:
        in_gang = self._order.claimed.rendezvous.size > 1
        finish = Finish(self._stopper, self._inbox, self._journal, in_gang=in_gang, read_traces=self._read_traces)
        # Before anything is written: on a full disk the end still needs room.
        self._spool.keep_reserve()
        self._journal.record("state", phase="starting")
        wakeup = self._watch_signals()
        self._runner = runner = start_runner(self._directory, self._order, self._run_member)
        intake = Intake(self._selector, runner, self._inbox, self._output, self._journal)
        self._register_sources(runner, wakeup)
        usage = UsageMeter(self._hangs.device_memory)
        times = Timesheet(self._journal, self._order, runner.tally.times, usage)
        while self._status is None:
            self._run_round(runner, intake, times)
        times.end()
        # A dump may have ended the program before its stacks were read.
        self._hangs.write_stacks(runner)
        released = finish.end_program(intake, self._output, runner.tally)
        self._await_disk()
        times.close()
        return finish.make_ending(self._status, released, self._output, self._pump, self._hangs.message)

    def _await_disk(self) -> None:
        """Waits for room on the disk, which comes as the agent sends what is spooled."""
        until = boottime() + DISK_WAIT_S
        self._pump.write_output()
        while self._journal.waits_for_disk and boottime() < until:
            for key, _ in self._selector.select(DISK_LOOK_S):
                key.data()
            self._journal.catch_up()
            self._report_to_agents()

    def _run_round(self, runner: Runner, intake: Intake, times: Timesheet) -> None:
        if intake.pause_or_resume():
            times.look(waits=not intake.is_paused)
            self._hangs.wait(intake.is_paused)
        wait_s = self._wait_s()
        times.sleep(boottime(), wait_s)
        ready = self._selector.select(wait_s)
        times.wake(boottime())
        times.look(waits=intake.is_paused)
        # Before anything that was read meanwhile: a thawed host may find an Alive in its socket, sent before another
        # host took over. Nothing that comes late gives back a deadline that has passed.
        self._hangs.look(runner)
        self._perform_due(runner)
        try:
            for key, _ in ready:
                key.data()
            self._pump.write_due()
            self._answer_look()
        except SpoolFullError:
            self._stopper.stop(StopCause.SPOOL_FULL, None, boottime())
        self._report_to_agents()

    def _wait_s(self) -> float:
        due = self._stopper.next_at()
        lease = max(0.0, due - boottime()) if due is not None else _MAX_WAIT_S
        look = self._look[1].patience(boottime()) if self._look is not None else _MAX_WAIT_S
        return min(lease, self._pump.patience(), self._hangs.patience(), look, _MAX_WAIT_S)

    def _begin_look(self, asked_at: datetime) -> None:
        """Who asks while a look is under way gets its answer; one that is to be killed for a hang writes to the log."""
        if self._runner is None or self._look is not None or Action.DUMP in self._stopper.done:
            return
        runner, program = self._runner, str(self._directory.program)

        def ask() -> None:
            _send_quietly(runner.socket, {"op": "stacks"})

        self._look = asked_at, StacksLook(runner.stacks, runner.pid, program, boottime(), ask)

    def _answer_look(self) -> None:
        if self._look is None or self._runner is None:
            return
        asked_at, look = self._look
        seen = look.finish(boottime())
        if seen is not None:
            self._look = None
            for agent in self._agents:
                agent.queue(Looked(standing=self._hangs.standing(asked_at, seen, self._runner.tally)))

    def _perform_due(self, runner: Runner) -> None:
        """Carries out what the stopper says: before anything else, also after a freeze of the host."""
        while (due := self._stopper.due(boottime())) is not None:
            action, cause = due
            if action is Action.DUMP:
                self._hangs.dump(runner)
            elif action is Action.ASK:
                self._output.note(f"asked to stop: {cause}")
                _send_quietly(runner.socket, {"op": "stop"})
            elif action is Action.TERM:
                self._output.note(f"sent SIGTERM: {cause}")
                _signal_group(runner.pid, signal.SIGTERM)
            else:
                self._hangs.write_stacks(runner)
                self._output.note(f"sent SIGKILL: {cause}")
                kill_quietly(runner.pid, signal.SIGKILL)

    def _register_sources(self, runner: Runner, wakeup: socket.socket) -> None:
        self._on(wakeup, lambda: self._reap(runner, wakeup))
        self._on(self._listener, self._accept)
        self._on(runner.stacks.pipe, lambda: self._read_stacks(runner))
        if self._parent_fd is not None:
            self._on(self._parent_fd, self._on_parent_exit)

    def _on(self, source: socket.socket | int, callback: Callable[[], None]) -> None:
        self._selector.register(source, selectors.EVENT_READ, callback)

    def _watch_signals(self) -> socket.socket:
        ours, handlers = socket.socketpair()
        ours.setblocking(False)
        handlers.setblocking(False)
        signal.set_wakeup_fd(handlers.detach(), warn_on_full_buffer=False)  # full: a wake-up is waiting already
        signal.signal(signal.SIGCHLD, lambda *_: None)  # with SIG_DFL nothing would be written to the descriptor
        signal.signal(signal.SIGTERM, self._on_sigterm)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return ours

    def _on_sigterm(self, _number: int, _frame: FrameType | None) -> None:
        self._stopper.stop(StopCause.PREEMPTED, self._order.claimed.limits.grace_s, boottime())

    def _reap(self, runner: Runner, wakeup: socket.socket) -> None:
        wakeup.recv(4_096)  # before reaping: a child that dies in between wakes us again

        def note(pid: int, status: int) -> None:
            if pid == runner.pid:
                self._status = status

        reap(note)

    def _read_stacks(self, runner: Runner) -> None:
        if not runner.stacks.read():
            self._selector.unregister(runner.stacks.pipe)

    def _on_parent_exit(self) -> None:
        if self._parent_fd is not None:
            self._selector.unregister(self._parent_fd)
        self._stopper.stop(StopCause.PREEMPTED, None, boottime())

    def _accept(self) -> None:
        agent = accept(self._listener)
        if agent is not None:
            self._hangs.peer_waits(False)  # what another agent said last may be over; a new one says it again
            self._agents.append(agent)
            self._on(agent.socket, lambda: self._receive(agent))

    def _receive(self, agent: AgentLink) -> None:
        messages = agent.receive()
        if messages is None:
            self._forget(agent)
            return
        for message in messages:
            self._carry_out(message)

    def _carry_out(self, message: Wish) -> None:
        if isinstance(message, Alive):
            sent_at = min(message.sent_at, boottime())  # no agent can grant a lease from the future
            self._stopper.extend(sent_at)
            self._hangs.record_server_contact(sent_at)
        elif isinstance(message, PeerWaits):
            self._hangs.peer_waits(message.waits)
        elif isinstance(message, Look):
            self._begin_look(message.asked_at)
        elif isinstance(message, Stop) and message.cause is StopCause.HANG:
            self._hangs.on_gang_hang()
        elif isinstance(message, Stop):
            self._stopper.stop(message.cause, message.grace_s, boottime())
        else:
            self._spool.trim(message.seq)
            self._report_registered(message.seq)

    def _report_registered(self, seq: int) -> None:
        count = self._inbox.checkpoints_until(seq)
        if count > self._registered and self._runner is not None:
            self._registered = count
            _send_quietly(self._runner.socket, {"op": "registered", "checkpoints": count})

    def _report_to_agents(self) -> None:
        progress = self._inbox.progress
        news = Spooled(
            seq=self._journal.last_seq,
            step=progress.step if progress else None,
            last_collective=progress.last_collective if progress else None,
            status=self._hangs.status(),
            can_look=True,
        )
        for agent in [agent for agent in self._agents if not agent.tell(news)]:
            self._forget(agent)

    def _forget(self, agent: AgentLink) -> None:
        self._selector.unregister(agent.socket)
        agent.socket.close()
        self._agents.remove(agent)


def _send_quietly(link: socket.socket, message: dict[str, object]) -> None:
    """Tells the runner; one that closed its socket needs no news, and gets TERM in the end.

    Nor does one whose socket is full, as it has read nothing for hundreds of messages: a shim that waits for it would
    extend no deadline.
    """
    try:
        link.send(encode(message), socket.MSG_DONTWAIT)
    except OSError:
        return


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        kill_quietly(pid, number)
