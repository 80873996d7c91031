"""`drumline sweep` and `drumline batches`: many runs of one program, and what came of them."""

import json
import re
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from drumline._flags import Duration, KeyValue
from drumline.cli.options import age, anyway_option, connect, json_option, json_text, server_options
from drumline.cli.submit import arguments, submission_options
from drumline.wording import duration, number_text, plural, table

if TYPE_CHECKING:
    from drumline.contracts import api
    from drumline.contracts.api import ProgramEntrypoint
    from drumline.contracts.sweeps import SweepSpec
    from drumline.program import PackedProgram


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
    values = (_parameter(row, name) for name in parameters)
    numbers = (
        number_text(row.metrics[name]) if name in row.metrics else row.not_finite.get(name, "-") for name in metrics
    )
    return row.run, state, *values, *numbers, "-" if row.duration_s is None else duration(row.duration_s)


def _parameter(row: "api.Outcome", name: str) -> str:
    if name not in row.parameters:
        return "-"
    is_default = row.given is not None and name not in row.given
    return f"{json.dumps(row.parameters[name])}{' (default)' if is_default else ''}"


_RANGE = re.compile(r"(log:)?([^,]+?)\.\.([^,]+)")


@click.command()
@click.argument("program", type=click.Path(exists=True))
@click.option(
    "--sweep",
    "swept",
    type=KeyValue(),
    multiple=True,
    help="NAME=V1,V2,... varies a parameter; with --random also NAME=LOW..HIGH or NAME=log:LOW..HIGH. Repeatable.",
)
@click.option("--random", "draws", type=click.IntRange(1), help="So many points drawn at random [default: all].")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the draws.")
@click.option("--points", type=click.Path(exists=True), help="A JSON file with a list of points: [{NAME: VALUE}, ...].")
@click.option("--batch-name", default="", help="What the sweep is about, for lists.")
@submission_options
@anyway_option
@json_option
@server_options
def sweep(program: str, url: str | None, as_json: bool, anyway: bool, **wanted: Any) -> None:
    """Submit PROGRAM once for each point of a parameter sweep.

    Without --random or --points every combination of the values is run: `--sweep learning_rate=0.1,0.01 --sweep
    epochs=5,10` makes four runs. Prints the batch and returns; `drumline batches show BATCH` shows what came of it.
    """
    chosen = {name: wanted.pop(name) for name in ("swept", "draws", "seed", "points", "batch_name")}
    from drumline.cli.watching import show_warnings
    from drumline.program import PackedProgram

    packed = PackedProgram.of(program)
    spec = _spec(packed, wanted["entrypoint"], chosen)
    with connect(url) as client:
        batch = client.sweep(packed, spec, batch_name=chosen["batch_name"], anyway=anyway, **arguments(packed, wanted))
        text = f"{batch.id}  {batch.details.size} runs  {batch.url}"
        click.echo(json_text(batch.details) if as_json else text)
        show_warnings(batch.warnings)


def _spec(packed: "PackedProgram", entrypoint: str | None, chosen: dict[str, Any]) -> "SweepSpec":
    from drumline._validation import typed_errors
    from drumline.contracts.sweeps import GridSweep, ListSweep, RandomSweep
    from drumline.program import find

    swept: dict[str, str] = {}
    for name, text in chosen["swept"]:
        if name in swept:
            raise click.UsageError(f"--sweep {name} stands there twice; give all its values at once: {name}=V1,V2")
        swept[name] = text
    if (chosen["points"] is None) == (not swept):
        raise click.UsageError("name what to vary: --sweep NAME=V1,V2, or --points FILE (one of the two)")
    with typed_errors():
        if chosen["points"] is not None:
            return ListSweep(points=_points(chosen["points"]))
        offered = find(packed.entrypoints, entrypoint)
        if chosen["draws"] is None:
            return GridSweep(parameters={name: _values(offered, name, text) for name, text in swept.items()})
        spaces = {name: _space(offered, name, text) for name, text in swept.items()}
        return RandomSweep(parameters=spaces, runs=chosen["draws"], seed=chosen["seed"])


def _points(path: str) -> Any:  # Any: JSON, checked by the contract
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except ValueError as error:
        raise click.UsageError(f"{path} is not JSON: {error}") from None


def _values(offered: "ProgramEntrypoint", name: str, text: str) -> list[Any]:
    """`0.1,0.01` as values of the parameter's type; commas in lists, objects and quotes do not part values."""
    from drumline.cli.submit import parse_typed_value, takes_text

    if _RANGE.fullmatch(text) and not takes_text(offered, name):
        raise click.UsageError(f"--sweep {name}={text} is a range: say with --random N how many points to draw")
    if not takes_text(offered, name):
        try:
            return list(json.loads(f"[{text}]"))
        except ValueError:
            pass
    return [parse_typed_value(offered, name, part) for part in text.split(",") if part]


def _space(offered: "ProgramEntrypoint", name: str, text: str) -> Any:  # Any: values, or a Range
    from drumline.cli.submit import takes_text
    from drumline.contracts.sweeps import Range

    found = _RANGE.fullmatch(text)
    if found is None or takes_text(offered, name):
        return _values(offered, name, text)
    kinds = {parameter.name: parameter.type for parameter in offered.parameters}
    scale, low, high = found.groups()
    return Range.model_validate(
        {"low": low, "high": high, "scale": "log" if scale else "linear", "whole": kinds[name] == "int"}
    )
