"""Lives a history's plan: builds its fleet, submits its runs and lets its faults strike."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from sim.host import Host
from sim.plan import FAULTS_END_S, Fault, History
from sim.shim import Shim
from sim.traps import LateRequests, LostTelemetry
from sim.user import body_of
from sim.world import World

OPERATOR_S = 60.0
"""A device that is quarantined for so long is seen to."""
_WAYS = ("requests", "answers", "both")
_LATE = ("/claim", "/register", "/end", "/events")
T = TypeVar("T")
Strike = Callable[[World, Fault], None]


def lay_out(world: World, history: History) -> None:
    """Puts all that the history consists of onto the timeline."""
    for number in range(history.servers):
        world.add_server(f"server{number}")
    for number, planned in enumerate(history.hosts):
        host = world.add_host(f"host{number}", planned.devices)
        host.rate, host.knows_its_place = planned.rate, planned.knows_its_place
        host.start_agent()
        if planned.goes_at is not None:
            world.timeline.at(planned.goes_at, host.go)
    for number, run in enumerate(history.submissions):
        body = body_of(number, run.replicas, run.user_retries, run.run_limit_s, endless=run.endless)
        world.timeline.at(run.at, lambda number=number, body=body: world.user.submit(number, body))  # type: ignore[misc] # bound early
    for fault in history.faults:
        world.timeline.at(fault.at, lambda fault=fault: STRIKES[fault.kind](world, fault))  # type: ignore[misc] # bound early
    for name, odds in history.odds.items():
        setattr(world.faults if name in world.faults.__slots__ else world.network.weather, name, odds)
    world.broker.duplicates = history.duplicated_notifications
    world.broker.forged_every_s = history.forged_every_s
    world.timeline.at(2.0, lambda: world.broker.forge([host.host_id for host in world.hosts]))
    world.timeline.at(FAULTS_END_S, lambda: mend_all(world))


def mend_all(world: World) -> None:
    """From now on everything works, and every machine is up."""
    world.timeline.note("faults", "are over")
    for target in (world.faults, world.network.weather):
        for name in target.__slots__:
            setattr(target, name, 0.0)
    world.broker.is_down, world.broker.duplicates, world.broker.forged_every_s = False, 0.0, 0.0
    for server in world.network.servers:
        server.start()
        if server.process is not None:
            server.process.thaw()
    for host in world.hosts:
        host.line.requests_cut = host.line.answers_cut = False
        host.line.trap = None
        host.thaw()
        host.start_agent()
        if host.agent is not None:
            host.agent.process.thaw()
    world.timeline.after(OPERATOR_S / 2, lambda: _operate(world))


def _operate(world: World) -> None:
    for number in world.user.wants_stopped:
        world.user.cancel(number, None)
    world.operate()
    world.timeline.after(OPERATOR_S, lambda: _operate(world))


def _host(world: World, fault: Fault) -> Host:
    """Any of the machines that have that identity."""
    return _picked(fault, world.machines(world.hosts[fault.host].host_id))


def _seconds(fault: Fault) -> float:
    assert fault.seconds is not None, f"{fault.kind} takes a time"
    return fault.seconds


def _picked(fault: Fault, among: Sequence[T]) -> T:
    return among[int(fault.pick * len(among))]


def _picked_shim(world: World, fault: Fault, what: str) -> Shim | None:
    shims = list(_host(world, fault).shims.values())
    if not shims:
        return None
    shim = _picked(fault, shims)
    world.timeline.note(shim.host.name, f"the {what} of {shim.member[-6:]} is killed")
    return shim


def _kill_agent(world: World, fault: Fault) -> None:
    _host(world, fault).kill_agent(restart_s=_seconds(fault))


def _kill_shim(world: World, fault: Fault) -> None:
    shim = _picked_shim(world, fault, "shim")
    if shim is not None:
        shim.host.run(shim.kill)


def _kill_runner(world: World, fault: Fault) -> None:
    shim = _picked_shim(world, fault, "program")
    if shim is not None:
        shim.host.run(lambda: shim.kill_runner(9))


def _freeze_host(world: World, fault: Fault) -> None:
    _host(world, fault).freeze(_seconds(fault))


def _freeze_agent(world: World, fault: Fault) -> None:
    host = _host(world, fault)
    if host.agent is not None and not host.frozen:
        process = host.agent.process
        world.timeline.note(host.name, "agent freezes")
        process.freeze()
        world.timeline.after(_seconds(fault), process.thaw)


def _reboot(world: World, fault: Fault) -> None:
    _host(world, fault).reboot(_seconds(fault))


def _lose_disk(world: World, fault: Fault) -> None:
    _host(world, fault).lose_disk()


def _drain(world: World, fault: Fault) -> None:
    agent = _host(world, fault).agent
    if agent is not None:
        agent.drain()


def _cut(world: World, fault: Fault) -> None:
    host, way = _host(world, fault), _picked(fault, _WAYS)
    world.timeline.note(host.name, f"{way} are cut for {_seconds(fault):.0f} s")
    line = host.line
    line.requests_cut = way != "answers"
    line.answers_cut = way != "requests"

    def mend() -> None:
        line.requests_cut = line.answers_cut = False

    world.timeline.after(_seconds(fault), mend)


def _clog(world: World, fault: Fault) -> None:
    """Swizzle-clog: one line after the other from this one on, mended in another order."""
    for number in range(len(world.hosts)):
        share = (fault.pick * (number + 1) * 7.0) % 1.0
        one = fault.model_copy(
            update={"host": (fault.host + number) % len(world.hosts), "seconds": _seconds(fault) * (1.0 - share / 2)}
        )
        world.timeline.after(share * 10.0, lambda one=one: _cut(world, one))  # type: ignore[misc] # bound early


def _crash_server(world: World, fault: Fault) -> None:
    _picked(fault, world.network.servers).crash()


def _freeze_server(world: World, fault: Fault) -> None:
    _picked(fault, world.network.servers).freeze(_seconds(fault))


def _jump_clock(world: World, fault: Fault) -> None:
    world.timeline.note("clock", f"the servers' clock jumps by {_seconds(fault):+.1f} s")
    world.server_clock_offset_s += _seconds(fault)


def _jump_host_clock(world: World, fault: Fault) -> None:
    _host(world, fault).wall_offset_s = _seconds(fault)


def _redis_away(world: World, fault: Fault) -> None:
    world.timeline.note("redis", "goes away")
    world.broker.is_down = True

    def back() -> None:
        world.broker.is_down = False

    world.timeline.after(_seconds(fault), back)


def _redis_flush(world: World, fault: Fault) -> None:
    del fault
    world.timeline.note("redis", "is flushed")
    world.broker.flush()


def _cancel(world: World, fault: Fault) -> None:
    if world.user.keys_used:
        world.user.cancel(_picked(fault, range(world.user.keys_used)), fault.seconds)


def _late_requests(world: World, fault: Fault) -> None:
    """An agent that only just starts introduces itself at once, so a registration is caught by a kill."""
    host, path = _host(world, fault), _picked(fault, _LATE)
    if host.agent is None:
        return
    host.line.trap = LateRequests(host, path, _seconds(fault))
    if path == "/register":
        host.kill_agent(restart_s=0.5)


def _lose_telemetry(world: World, fault: Fault) -> None:
    host = _host(world, fault)
    world.timeline.note(host.name, "no telemetry arrives")
    host.line.trap = LostTelemetry(host)


def _move(world: World, fault: Fault) -> None:
    """Another machine, or directory, takes the identity, with a copy of all data or none; the older is cut off."""
    older = _host(world, fault)
    older.line.requests_cut = older.line.answers_cut = True

    def mend() -> None:
        older.line.requests_cut = older.line.answers_cut = False

    world.timeline.after(_seconds(fault), mend)
    world.timeline.after(
        world.timeline.rng.uniform(0.0, 5.0),
        lambda: world.add_twin(
            older, has_data=fault.pick * 4 % 2 < 1, same_boot=older.knows_its_place and fault.pick * 8 % 2 < 1
        ),
    )


STRIKES: dict[str, Strike] = {
    "kill_agent": _kill_agent,
    "kill_shim": _kill_shim,
    "kill_runner": _kill_runner,
    "freeze_host": _freeze_host,
    "freeze_agent": _freeze_agent,
    "reboot": _reboot,
    "lose_disk": _lose_disk,
    "drain": _drain,
    "cut": _cut,
    "clog": _clog,
    "crash_server": _crash_server,
    "freeze_server": _freeze_server,
    "jump_clock": _jump_clock,
    "jump_host_clock": _jump_host_clock,
    "redis_away": _redis_away,
    "redis_flush": _redis_flush,
    "cancel": _cancel,
    "late_requests": _late_requests,
    "lose_telemetry": _lose_telemetry,
    "move": _move,
}
