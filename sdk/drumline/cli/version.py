"""`drumline version`."""

import json
from importlib.metadata import version as installed_version

import click

from drumline.cli.options import json_option, server_options


@click.command()
@json_option
@server_options
def version(as_json: bool, url: str | None) -> None:
    """Print the versions of client and server; the server's is left out where none answers."""
    found = {"client": installed_version("drumline"), "server": _server_version(url)}
    if as_json:
        click.echo(json.dumps(found))
        return
    click.echo(f"client {found['client']}")
    click.echo(f"server {found['server'] or '(none answers)'}")


def _server_version(url: str | None) -> str | None:
    from drumline.cli.options import connect
    from drumline.errors import ConfigError, ServerUnreachableError

    try:
        with connect(url) as client:
            return client.server_version().version
    except (ConfigError, ServerUnreachableError):
        return None
