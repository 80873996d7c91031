"""`drumline retention`."""

import click

from drumline._flags import Days, Size
from drumline.cli.options import connect, json_option, server_options
from drumline.cli.terminal import json_text
from drumline.contracts import api
from drumline.wording import size_text


@click.command()
@click.option("--days", type=Days(), help="Delete runs so many days after their end; 'off': never for their age.")
@click.option("--telemetry", type=Size(), help="Keep so much telemetry of ended runs, such as 50GB; 'off': all of it.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
@server_options
def retention(days: int | None, telemetry: int | None, yes: bool, as_json: bool, url: str | None) -> None:
    """Show or change how long the project keeps ended runs. Starred runs are always kept."""
    with connect(url) as client:
        known = client.retention()
        if days is not None or telemetry is not None:
            wanted = api.RetentionChange(
                days=known.days if days is None else days or None,
                telemetry_bytes=known.telemetry_bytes if telemetry is None else telemetry or None,
            )
            if not yes and (wanted.days or wanted.telemetry_bytes):
                click.confirm(f"{_text(wanted)} What is beyond is deleted now, for good. Go on?", abort=True, err=True)
            known = client.set_retention(days=wanted.days, telemetry_bytes=wanted.telemetry_bytes)
    click.echo(json_text(known) if as_json else _text(known))


def _text(kept: api.Retention | api.RetentionChange) -> str:
    by_age = f"for {kept.days} days after their end" if kept.days else "however old they are"
    most = f", up to {size_text(kept.telemetry_bytes)} of telemetry" if kept.telemetry_bytes else ""
    return f"Ended runs are kept {by_age}{most}; starred ones always."
