"""`drumline webhooks`."""

from typing import TYPE_CHECKING, Any

import click

from drumline._flags import Duration
from drumline.cli.options import age, connect, json_option, json_text, server_options
from drumline.wording import plain, table

if TYPE_CHECKING:
    from drumline.client import Client
    from drumline.contracts.api import Webhook, WebhookDelivery

_alerts_option = click.option(
    "--alert",
    "alerts",
    multiple=True,
    help="What to tell: run.succeeded, run.failed, run.cancelled, run.non_finite or run.stalled; repeatable.",
)
_LATEST = 20


@click.group(invoke_without_command=True)
@json_option
@server_options
@click.pass_context
def webhooks(context: click.Context, as_json: bool, url: str | None) -> None:
    """List the addresses that alerts of runs are posted to; with a command, make, change, test or delete one."""
    if context.invoked_subcommand is not None:
        return
    with connect(url) as client:
        found = list(client.webhooks)
    if as_json:
        click.echo(json_text(found))
    elif not found:
        click.echo("no webhooks: make one with `drumline webhooks create NAME ADDRESS`", err=True)
    else:
        headings = ("WEBHOOK", "ID", "STATE", "WAITING", "ALERTS", "JOB", "ADDRESS")
        click.echo(table(headings, [_row(each) for each in found]))
        for each in found:
            if each.last_error:
                click.echo(plain(f"{each.name}: {each.last_error} ({age(each.last_error_at)} ago)"))


@webhooks.command()
@click.argument("name")
@click.argument("address")
@_alerts_option
@click.option("--job", help="Only of this job's runs.")
@json_option
@server_options
def create(
    name: str, address: str, *, alerts: tuple[str, ...], job: str | None, as_json: bool, url: str | None
) -> None:
    """Have alerts of runs posted to ADDRESS, all of them unless --alert names some. Prints the secret, once."""
    chosen: dict[str, Any] = {"alerts": alerts} if alerts else {}
    with connect(url) as client:
        made = client.webhooks.create(name, address, job=job, **chosen)
    if as_json:
        click.echo(json_text(made))
        return
    click.echo(plain(f"{made.name}  {made.id}"))
    click.echo(f"secret, shown only now: {made.secret.get_secret_value()}")


@webhooks.command()
@click.argument("name")
@click.option("--name", "new_name", help="Another name.")
@click.option("--address", help="Another address; what waits is posted there at once.")
@_alerts_option
@click.option("--job", help='Only of this job\'s runs; "" for all jobs.')
@click.option("--on/--off", "enabled", default=None, help="Post again, or not any more.")
@json_option
@server_options
def change(
    name: str,
    new_name: str | None,
    address: str | None,
    *,
    alerts: tuple[str, ...],
    job: str | None,
    enabled: bool | None,
    as_json: bool,
    url: str | None,
) -> None:
    """Change a webhook; what is not given stays."""
    given: dict[str, Any] = {"name": new_name, "url": address, "alerts": alerts or None, "job": job, "enabled": enabled}
    if all(value is None for value in given.values()):
        raise click.UsageError("say what to change: --name, --address, --alert, --job, --on or --off")
    with connect(url) as client:
        changed = client.webhooks.change(_find(client, name).id, **given)
    click.echo(json_text(changed) if as_json else plain(f"{changed.name}  {_state(changed)}"))


@webhooks.command("replace-secret")
@click.argument("name")
@click.option("--keep-old", type=Duration(), default="1d", help="How long posts are signed with the old one too.")
@json_option
@server_options
def replace_secret(name: str, *, keep_old: float, as_json: bool, url: str | None) -> None:
    """Give a webhook a new secret, and print it, once."""
    with connect(url) as client:
        made = client.webhooks.replace_secret(_find(client, name).id, keep_old_s=keep_old)
    if as_json:
        click.echo(json_text(made))
        return
    click.echo(f"secret, shown only now: {made.secret.get_secret_value()}")
    if made.old_secret_until is not None:
        click.echo(f"the one before is good until {made.old_secret_until:%Y-%m-%d %H:%M} UTC")


@webhooks.command()
@click.argument("name")
@server_options
def delete(name: str, url: str | None) -> None:
    """Delete a webhook with its deliveries."""
    with connect(url) as client:
        found = _find(client, name)
        client.webhooks.delete(found.id)
    click.echo(plain(f"{found.name}  deleted"))


@webhooks.command()
@click.argument("name")
@json_option
@server_options
@click.pass_context
def test(context: click.Context, name: str, as_json: bool, url: str | None) -> None:
    """Have a test posted to a webhook, and say what came of it; exit code 1 where it was not taken."""
    with connect(url) as client:
        posted = client.webhooks.test(_find(client, name).id)
    click.echo(json_text(posted) if as_json else plain(f"{posted.state}  {posted.error}".rstrip()))
    context.exit(0 if posted.state == "delivered" else 1)


@webhooks.command()
@click.argument("name")
@json_option
@server_options
def deliveries(name: str, as_json: bool, url: str | None) -> None:
    """List the newest deliveries of a webhook, with what each failed of."""
    from itertools import islice

    with connect(url) as client:
        found = list(islice(client.webhooks.deliveries(_find(client, name).id), _LATEST))
    if as_json:
        click.echo(json_text(found))
        return
    headings = ("DELIVERY", "ALERT", "RUN", "STATE", "TRIES", "AGE", "ERROR")
    click.echo(table(headings, [_delivery_row(each) for each in found]))


def _find(client: "Client", name: str) -> "Webhook":
    known = list(client.webhooks)
    found = [each for each in known if name in (each.name, each.id)]
    if len(found) == 1:
        return found[0]
    if found:
        raise click.UsageError(f"{len(found)} webhooks are called {name!r}: {', '.join(each.id for each in found)}")
    raise click.UsageError(f"no webhook is called {name!r}; there are: {', '.join(e.name for e in known) or 'none'}")


def _state(webhook: "Webhook") -> str:
    if not webhook.enabled:
        return "off"
    return "failing" if webhook.failures else "on"


def _row(webhook: "Webhook") -> tuple[str, ...]:
    alerts = ",".join(alert.removeprefix("run.") for alert in webhook.alerts)
    waiting = str(webhook.waiting)
    return webhook.name, webhook.id, _state(webhook), waiting, alerts, webhook.job or "all", webhook.url


def _delivery_row(each: "WebhookDelivery") -> tuple[str, ...]:
    return each.id, each.alert, each.run or "", each.state, str(each.tries), age(each.created_at), each.error
