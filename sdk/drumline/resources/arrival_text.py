"""When the members of a gang come to their collectives, and how long each replica computes, as text."""

from drumline.contracts import api
from drumline.wording import plural, table

_UNMEASURED = {
    "executor": "not measured for this executor: one process starts all replicas together",
    "nothing_told": "nothing measured yet",
}
_HEADINGS = ("RANK", "HOST", "CAME LAST", "ARRIVAL", "INPUT", "OWN CODE", "DISPATCH", "WAIT", "DEVICES")


def arrivals_text(found: api.Arrivals) -> str:
    """A row for each member, then whom they wait for."""
    if found.unmeasured is not None:
        why = _UNMEASURED[found.unmeasured]
        return f"{why} ({found.executor})" if found.unmeasured == "executor" and found.executor else why
    rows = [_row(member, found.compared) for member in found.members]
    step = "" if found.step_ms is None else f"a step takes {found.step_ms:.3g} ms"
    error = "" if found.error_ms is None else f", and members' measures of one differ by {found.error_ms:.3g} ms"
    over = f"medians in ms over {plural(found.compared, 'sampled step')}; {step}{error}"
    last = "no straggler" if found.straggler is None else straggler_text(found.straggler)
    return f"{table(_HEADINGS, rows)}\n\n{over}\n{last}"


def straggler_text(one: api.Straggler) -> str:
    """Who it is and what it costs at most."""
    return (
        f"rank {one.rank} on {one.host_name} came last in {one.arrived_last} of {one.compared} sampled steps: the "
        f"others wait up to {one.gain_percent:.0f} % of a step for it ({one.gain_ms:.3g} of {one.step_ms:.3g} ms)"
    )


def _row(member: api.MemberArrival, compared: int) -> tuple[str, ...]:
    times = member.median
    told = () if times is None else (
        times.arrival_ms, times.input_ms, times.own_code_ms, times.dispatch_ms, times.wait_ms, times.devices_ms
    )  # fmt: skip
    shown = [f"{value:.3g}" for value in told] or ["-"] * 6
    return (str(member.rank), member.host_name, f"{member.arrived_last} of {compared}", *shown)


_NO_TIMES = {
    "not_traced": "no step is traced yet that all processes traced; record.profile_every says how often one is",
    "not_told": "the traces of this platform tell no operations of devices",
}
_REPLICA_HEADINGS = ("REPLICA", "DEVICE", "HOST", "COMPUTES", "COLLECTIVES", "IDLE", "WAITED LEAST")


def replicas_text(found: api.ReplicaTimes) -> str:
    """A row for each device, who waits least first, then whom the others wait for."""
    if found.unmeasured is not None:
        return _NO_TIMES[found.unmeasured]
    rows = [_replica_row(one, len(found.steps)) for one in found.devices]
    span = "" if found.span_ms is None else f", of {found.span_ms:.3g} ms"
    over = f"medians in ms over {plural(len(found.steps), 'traced step')}{span}"
    last = "no slow replica" if found.slowest is None else _slow_text(found.slowest, found)
    return f"{table(_REPLICA_HEADINGS, rows)}\n\n{over}\n{last}"


def _replica_row(one: api.ReplicaTime, steps: int) -> tuple[str, ...]:
    name = str(one.replica) if not one.logical else f"{one.replica}.{one.logical}"
    times = (f"{value:.3g}" for value in (one.computing_ms, one.collective_ms, one.idle_ms))
    return (name, one.device, one.host_name, *times, f"{one.waited_least} of {steps}")


def _slow_text(one: api.SlowReplica, found: api.ReplicaTimes) -> str:
    return (
        f"replica {one.replica} on {one.host_name} waited least in {one.waited_least} of {len(found.steps)} steps: the "
        f"others wait up to {one.gain_percent:.0f} % of a step for it ({one.gain_ms:.3g} ms)"
    )
