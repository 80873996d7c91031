"""`drumline hosts`."""

from typing import TYPE_CHECKING

import click

from drumline.cli.options import age, connect, json_option, json_text, principal_text, server_options
from drumline.wording import plain, size_text, table

if TYPE_CHECKING:
    from drumline.client import Client
    from drumline.contracts.api import Device, Host


@click.group(invoke_without_command=True)
@json_option
@server_options
@click.pass_context
def hosts(context: click.Context, as_json: bool, url: str | None) -> None:
    """List the machines with a worker, and what is wrong with them; with a command, drain or release one."""
    if context.invoked_subcommand is not None:
        return
    with connect(url) as client:
        found = list(client.hosts())
        quarantined = [device for device in client.devices() if device.quarantine] if not as_json else []
    if as_json:
        click.echo(json_text(found))
    elif not found:
        click.echo("no hosts: start a worker with `drumline worker`", err=True)
    else:
        headings = ("HOST", "STATE", "FREE", "PLATFORM", "CPUS", "MEMORY", "HEARD", "JAX")
        click.echo(table(headings, [_row(host) for host in found]))
        for line in (*_warnings(found), *_drains(found), *_troubles(found), *_quarantines(quarantined)):
            click.echo(plain(line))


@hosts.command()
@click.argument("name")
@json_option
@server_options
def drain(name: str, as_json: bool, url: str | None) -> None:
    """Give a host no more runs; those that run there stop in their grace and resume elsewhere."""
    with connect(url) as client:
        _tell(client.drain_host(_find(client, name).id), as_json)


@hosts.command()
@click.argument("name")
@json_option
@server_options
def undrain(name: str, as_json: bool, url: str | None) -> None:
    """Let a drained host take runs again."""
    with connect(url) as client:
        _tell(client.undrain_host(_find(client, name).id), as_json)


@hosts.command()
@click.argument("name")
@click.option("--device", "device_name", metavar="PLATFORM:INDEX", help="One quarantined device, such as gpu:3.")
@json_option
@server_options
def release(name: str, device_name: str | None, as_json: bool, url: str | None) -> None:
    """Put a quarantined host back into service, or one of its quarantined devices."""
    with connect(url) as client:
        host = _find(client, name)
        if device_name is None:
            _tell(client.release_host(host.id), as_json)
            return
        device = client.release_device(_find_device(client, host, device_name).id)
        click.echo(json_text(device) if as_json else plain(f"{device_name} on {host.name}  {device.state}"))


def _find(client: "Client", name: str) -> "Host":
    known = list(client.hosts())
    for host in known:
        if name in (host.name, host.id):
            return host
    names = ", ".join(host.name for host in known) or "none"
    raise click.UsageError(f"no host is called {name!r}; there are: {names}")


def _find_device(client: "Client", host: "Host", name: str) -> "Device":
    known = [device for device in client.devices() if device.host == host.id]
    for device in known:
        if name in (f"{device.platform}:{device.index}", device.id):
            return device
    names = ", ".join(f"{device.platform}:{device.index}" for device in known)
    raise click.UsageError(f"{host.name} has no device {name!r}; it has {names}")


def _tell(host: "Host", as_json: bool) -> None:
    click.echo(json_text(host) if as_json else plain(f"{host.name}  {host.state}"))


def _warnings(found: "list[Host]") -> list[str]:
    return [f"{host.name}: {warning.message} {warning.fix}".rstrip() for host in found for warning in host.warnings]


def _drains(found: "list[Host]") -> list[str]:
    asked = [(host, host.drain_requested_by) for host in found if host.drain_requested_by is not None]
    return [
        f"{host.name}: {principal_text(who)} had it drained; it takes no runs until undrained." for host, who in asked
    ]


def _troubles(found: "list[Host]") -> list[str]:
    lines = []
    for host in found:
        if host.trouble is not None:
            runs = ", ".join(f"{failure.run} {failure.reason}" for failure in host.trouble.failures)
            lines.append(f"{host.name}: {host.trouble.kind}. {host.trouble.sentence} {runs}")
    return lines


def _quarantines(devices: "list[Device]") -> list[str]:
    lines = []
    for device in devices:
        if device.quarantine is not None:
            told = f"{device.quarantine.sentence} {device.quarantine.probe_message}".rstrip()
            where = f"{device.platform}:{device.index} on {device.host_name}"
            lines.append(f"{where}: quarantined. {told} Run {device.quarantine.run}.")
    return lines


def _row(host: "Host") -> tuple[str, ...]:
    return (
        host.name,
        host.state,
        f"{host.free_devices}/{host.devices}",
        ",".join(host.platforms),
        str(host.cpu_count),
        size_text(host.memory_bytes),
        age(host.last_heartbeat_at),
        host.jax_version,
    )
