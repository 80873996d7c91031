"""Commands that change runs: `drumline cancel`, `mark`, `delete`, `rerun` and `retention`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from drumline._flags import Days, Duration, KeyValue, Size
from drumline.cli.options import connect, detach_option, json_option, json_text, logs_option, server_options
from drumline.wording import plural, size_text

if TYPE_CHECKING:
    from drumline.contracts import api


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--grace", type=Duration(), help="Time that the program has to stop by itself.")
@json_option
@server_options
def cancel(run_id: str, grace: float | None, as_json: bool, url: str | None) -> None:
    """Ask a run to stop. Returns at once; an ended run is left as it is."""
    with connect(url) as client:
        run = client.get(run_id).cancel(grace)
        click.echo(json_text(run.details) if as_json else f"{run.id}  {run.state}")


@click.command()
@click.argument("run_ids", metavar="[RUN]...", nargs=-1)
@click.option("--where", help="All runs that match this filter, in place of RUN.")
@click.option("--label", "labels", type=KeyValue(), multiple=True, help="Set a label; repeatable.")
@click.option("--unlabel", multiple=True, metavar="NAME", help="Take a label away; repeatable.")
@click.option("--note", help="Replace the note.")
@click.option("--star/--unstar", "starred", default=None, help="Star, or take the star away.")
@click.option("--archive/--unarchive", "archived", default=None, help="Leave out of lists, or show again.")
@json_option
@server_options
def mark(
    run_ids: tuple[str, ...],
    where: str | None,
    as_json: bool,
    url: str | None,
    **change: Any,
) -> None:
    """Label, note, star or archive runs, at any time."""
    if bool(run_ids) == (where is not None):
        raise click.UsageError("name either runs or --where")
    change["labels"] = {**dict(change["labels"]), **dict.fromkeys(change.pop("unlabel"))} or None
    if all(value is None for value in change.values()):
        raise click.UsageError("say what to change: --label, --unlabel, --note, --star or --archive")
    with connect(url) as client:
        if where is None:
            marked = [client.get(run_id).mark(**change) for run_id in run_ids]
            click.echo(json_text([run.details for run in marked]) if as_json else f"{len(marked)} marked")
            return
        changes = client.runs(where, archived=change["archived"] is False).mark(**change)
    if as_json:
        click.echo(json_text(changes))
    for each in () if as_json else changes:
        click.echo(f"{each.action.kind}: {each.changed} of {each.total} runs changed")


@click.command()
@click.argument("run_ids", metavar="[RUN]...", nargs=-1)
@click.option("--where", help="All ended runs that match this filter, in place of RUN.")
@click.option("--why", default="", help="Kept in the audit log.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
@server_options
def delete(run_ids: tuple[str, ...], where: str | None, as_json: bool, url: str | None, **how: Any) -> None:
    """Delete runs that have ended, for good, with all that they logged. What they used stays in the ledger."""
    why, yes = str(how["why"]), bool(how["yes"])
    if bool(run_ids) == (where is not None):
        raise click.UsageError("name either runs or --where")
    with connect(url) as client:
        if where is None:
            runs = [client.get(run_id) for run_id in run_ids]
            _ask(yes, ", ".join(f"{run.id} ({run.job})" for run in runs))
            deleted = [run.delete(why) for run in runs]
            click.echo(json_text(deleted) if as_json else f"{len(deleted)} deleted")
            return
        matching = client.runs(where, archived=True)
        _ask(yes, f"the runs that match, {matching.count()} with those that live, which are kept")
        change = matching.delete(why)
    click.echo(json_text(change) if as_json else f"{change.changed} of {change.total} runs deleted")
    if not as_json:
        _tell(change.refused)


def _ask(yes: bool, what: str) -> None:
    if not yes:
        click.confirm(f"Delete {what}, for good?", abort=True, err=True)


def _tell(refused: "Sequence[api.Refusal]") -> None:
    for each in refused:
        click.echo(f"{each.detail} {each.hint}", err=True)


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--wait-for-devices", is_flag=True, help="Queue the run even if no host could hold it now.")
@click.option("--from-start", is_flag=True, help="Start over, also if the old run resumed from a checkpoint.")
@detach_option
@logs_option(default=True)
@json_option
@server_options
def rerun(
    *,
    run_id: str,
    wait_for_devices: bool,
    from_start: bool,
    detach: bool,
    with_logs: bool,
    as_json: bool,
    url: str | None,
) -> None:
    """Run an old run again, with its own version, parameters and options, and watch it.

    To change something, submit the program again, or run the job: `drumline jobs run JOB --version N`.
    """
    from drumline.cli.watching import follow

    with connect(url) as client:
        run = client.get(run_id).rerun(wait_for_devices=wait_for_devices or None, from_start=from_start)
        follow(run, detach=detach, as_json=as_json, with_logs=with_logs)


@click.command()
@click.option("--days", type=Days(), help="Delete runs so many days after their end; 'off': never for their age.")
@click.option("--telemetry", type=Size(), help="Keep so much telemetry of ended runs, such as 50GB; 'off': all of it.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
@server_options
def retention(days: int | None, telemetry: int | None, yes: bool, as_json: bool, url: str | None) -> None:
    """Show or change how long the project keeps ended runs. Starred runs are always kept."""
    from drumline.contracts.api import RetentionChange

    with connect(url) as client:
        known = client.retention()
        if days is not None or telemetry is not None:
            wanted = RetentionChange(
                days=known.days if days is None else days or None,
                telemetry_bytes=known.telemetry_bytes if telemetry is None else telemetry or None,
            )
            if not yes and (wanted.days or wanted.telemetry_bytes):
                click.confirm(f"{_text(wanted)} What is beyond is deleted now, for good. Go on?", abort=True, err=True)
            known = client.set_retention(days=wanted.days, telemetry_bytes=wanted.telemetry_bytes)
    click.echo(json_text(known) if as_json else _text(known))


def _text(kept: "api.Retention | api.RetentionChange") -> str:
    by_age = f"for {plural(kept.days, 'day')} after their end" if kept.days else "however old they are"
    most = f", up to {size_text(kept.telemetry_bytes)} of telemetry" if kept.telemetry_bytes else ""
    return f"Ended runs are kept {by_age}{most}; starred ones always."
