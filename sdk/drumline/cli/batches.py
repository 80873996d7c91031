"""`drumline batches`: batches, and the table of what came of one."""

import json
from itertools import islice
from typing import TYPE_CHECKING

import click

from drumline._flags import Duration
from drumline.cli.options import connect, json_option, server_options
from drumline.cli.terminal import age, json_text
from drumline.wording import duration, plural, table

if TYPE_CHECKING:
    from drumline.contracts import api


@click.group(invoke_without_command=True)
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="At most so many, newest first.")
@json_option
@server_options
@click.pass_context
def batches(context: click.Context, limit: int, as_json: bool, url: str | None) -> None:
    """List the batches, newest first; or look at one."""
    if context.invoked_subcommand is not None:
        return
    with connect(url) as client:
        found = list(islice(client.batches(), limit))
    if as_json:
        click.echo(json_text(found))
    elif not found:
        click.echo("no batches: vary a parameter with `drumline sweep PROGRAM.py --sweep NAME=V1,V2`", err=True)
    else:
        click.echo(
            table(("BATCH", "NAME", "OWNER", "JOBS", "RUNS", "STATES", "AGE"), [_batch_row(batch) for batch in found])
        )


@batches.command()
@click.argument("batch_id", metavar="BATCH")
@click.option("--sort", default="index", show_default=True, help="best.METRIC, [-]metrics.NAME, [-]parameters.NAME ...")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many rows.")
@click.option("--metric", "metrics", multiple=True, help="Show only these numbers of the results; repeatable.")
@click.option("--csv", "as_csv", is_flag=True, help="The whole table as CSV.")
@json_option
@server_options
def show(
    *, batch_id: str, sort: str, limit: int, metrics: tuple[str, ...], as_csv: bool, as_json: bool, url: str | None
) -> None:
    """Show what came of BATCH: a row for each run, sorted as you say."""
    with connect(url) as client:
        batch = client.batch(batch_id)
        if as_csv:
            click.echo(batch.csv(sort=sort), nl=False)
            return
        page = batch.outcomes_page({"sort": sort, "limit": limit})
    if as_json:
        click.echo(json_text(page))
        return
    names = metrics or tuple(metric.name for metric in page.metrics)
    headings = ("RUN", "STATE", *page.parameters, *names, "DURATION")
    click.echo(table(headings, [_outcome_row(row, page.parameters, names) for row in page.items]))
    click.echo(f"{_states(batch.details)}; {len(page.items)} of {page.total} shown  {batch.url}", err=True)
    if batch.details.hint:
        click.echo(batch.details.hint, err=True)


@batches.command()
@click.argument("batch_id", metavar="BATCH")
@click.option("--grace", type=Duration(), help="Time that programs have to stop by themselves.")
@json_option
@server_options
def cancel(batch_id: str, grace: float | None, as_json: bool, url: str | None) -> None:
    """Ask all runs of BATCH that have not ended to stop. Returns at once."""
    with connect(url) as client:
        batch = client.batch(batch_id).cancel(grace)
    click.echo(json_text(batch.details) if as_json else f"{batch.id}  {_states(batch.details)}")


def _batch_row(batch: "api.Batch") -> tuple[str, ...]:
    jobs = batch.jobs[0] if len(batch.jobs) == 1 else f"{len(batch.jobs)} jobs"
    return batch.id, batch.name or "-", batch.submitted_by, jobs, str(batch.size), _states(batch), age(batch.created_at)


def _states(batch: "api.Batch") -> str:
    states = ", ".join(f"{count} {state.lower()}" for state, count in batch.states.items())
    if batch.deleted:
        states += f"{', ' if states else ''}{batch.deleted} deleted"
    if not batch.complete:
        states += f", {batch.size - batch.deleted - sum(batch.states.values())} not queued yet"
    left = batch.cancel.left if batch.cancel else 0
    return f"{states}; being cancelled, {plural(left, 'run')} still to be asked to stop" if left else states


def _outcome_row(row: "api.Outcome", parameters: tuple[str, ...], metrics: tuple[str, ...]) -> tuple[str, ...]:
    state = f"{row.state} ({row.reason})" if row.reason and row.state == "FAILED" else str(row.state)
    values = (json.dumps(row.parameters[name]) if name in row.parameters else "-" for name in parameters)
    numbers = (f"{row.metrics[name]:.6g}" if name in row.metrics else "-" for name in metrics)
    return row.run, state, *values, *numbers, "-" if row.duration_s is None else duration(row.duration_s)
