"""Why a run waits although hosts have enough devices: they, or some of those devices, are out of service."""

from collections.abc import Sequence
from typing import Literal

from drumline.contracts import api
from drumline_server.runs.feasibility import describe_need
from drumline_server.scheduler.capacity import HostCapacity, room
from drumline_server.scheduler.shapes import Shape

_SENTENCES = {
    "quarantined": "{host} has devices for it, but is quarantined: run after run failed there.",
    "draining": "{host} has devices for it, but takes no more runs: it is being drained.",
    "lost": "{host} has devices for it, but has fallen silent.",
}
_REMEDIES = {
    "quarantined": "Look at {host}, then release it: `drumline hosts release {host}`, or on the Devices page.",
    "draining": "`drumline hosts undrain {host}` lets it take runs again, if its worker is to stay.",
    "lost": "Start the worker of {host} again.",
}
_RULES: dict[str, Literal["host_quarantined", "host_draining", "host_lost"]] = {
    "quarantined": "host_quarantined",
    "draining": "host_draining",
    "lost": "host_lost",
}


def why_out_of_service(hosts: Sequence[HostCapacity], shape: Shape) -> api.Why | None:
    """The rule, if the run would have room but for quarantine, drain or silence; `hosts` have its platform."""
    in_service = [host for host in hosts if host.out_of_service is None]
    if room(in_service, shape, lambda host: host.devices) < shape.replicas:
        return _why_host(hosts, shape)
    if room(in_service, shape, lambda host: host.free) >= shape.replicas:
        return None
    return _why_devices(in_service, shape)


def _why_host(hosts: Sequence[HostCapacity], shape: Shape) -> api.Why | None:
    out = [host for host in hosts if host.out_of_service is not None]
    large_enough = [host for host in out if host.devices >= shape.devices]
    host = min(large_enough or out, key=lambda host: [*_RULES].index(str(host.out_of_service)), default=None)
    if host is None:
        return None
    state = str(host.out_of_service)
    return api.Why(
        rule=_RULES[state],
        sentence=_SENTENCES[state].format(host=host.host_name),
        evidence={"wanted": shape.devices, "host": host.host_name, "devices": host.devices},
        remedy=_REMEDIES[state].format(host=host.host_name),
    )


def _why_devices(hosts: Sequence[HostCapacity], shape: Shape) -> api.Why | None:
    if room(hosts, shape, lambda host: host.free + host.quarantined) < shape.replicas:
        return None
    host = max(hosts, key=lambda host: (host.quarantined > 0, host.free + host.quarantined))
    return api.Why(
        rule="devices_quarantined",
        sentence=f"Needs {describe_need(shape)}; {host.host_name} has {host.free} free and {host.quarantined} "
        "quarantined, as their last run is not proven dead.",
        evidence={"wanted": shape.devices, "free": host.free, "quarantined": host.quarantined, "host": host.host_name},
        remedy="Its worker probes them; if you know that the run is dead, release them on the Devices page or with "
        f"`drumline hosts release {host.host_name} --device PLATFORM:INDEX`.",
    )
