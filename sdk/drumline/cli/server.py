"""`drumline open` and `drumline version`: the dashboard, and what answers."""

import json
from importlib.metadata import version as installed_version

import click

from drumline.cli.options import connect, json_option, server_options


@click.command("open")
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--print", "only_print", is_flag=True, help="Print the address; open nothing.")
@json_option
@server_options
def open_(run_id: str | None, only_print: bool, as_json: bool, url: str | None) -> None:
    """Open the dashboard, or the page of RUN, in a browser.

    An admin's token also signs the browser in, by a code that works once and for ten minutes.
    """
    from drumline.errors import PermissionDeniedError

    with connect(url) as client:
        path = f"/runs/{client.get(run_id).id}" if run_id else "/"
        try:
            address = client.login_url(path)
        except PermissionDeniedError:
            address = f"{client.config.url}{path}"
    click.echo(json.dumps({"url": address}) if as_json else address)
    if not only_print and not as_json:
        click.launch(address)


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
