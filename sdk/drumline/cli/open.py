"""`drumline open`."""

import json

import click

from drumline.cli.options import connect, find_run, json_option, server_options


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
        path = f"/runs/{find_run(client, run_id).id}" if run_id else "/"
        try:
            address = client.login_url(path)
        except PermissionDeniedError:
            address = f"{client.config.url}{path}"
    click.echo(json.dumps({"url": address}) if as_json else address)
    if not only_print and not as_json:
        click.launch(address)
