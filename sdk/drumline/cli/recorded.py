"""What a run recorded, listed and saved: `drumline metrics`, `media`, `profiles`, `reductions` and `artifacts`."""

import csv
import io
import re
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from drumline.cli.options import connect, find_attempt, json_option, json_text, server_options
from drumline.wording import name_some, plain, plural, size_text, table

if TYPE_CHECKING:
    from drumline import Run
    from drumline.contracts.api import ReductionName, ReductionSummary
    from drumline.resources.artifacts import RunArtifact
    from drumline.resources.media import LoggedValue
    from drumline.resources.profiles import StepProfile


@click.command()
@click.argument("run_id", metavar="RUN")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--format", "form", type=click.Choice(["csv", "parquet", "arrow"]), default="csv", show_default=True)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file [default: stdout]."
)
@click.option("--attempt", metavar="ATTEMPT", help="Of this attempt, by number or id [default: what counts of all].")
@server_options
def metrics(
    *, run_id: str, names: tuple[str, ...], form: str, output: Path | None, attempt: str | None, url: str | None
) -> None:
    """Print every point of a run's metrics, or of those named: a row each."""
    if output is None and form != "csv" and sys.stdout.isatty():
        raise click.UsageError(f"{form} is no text; name a file with -o, or send the output to one.")
    with connect(url) as client:
        run = client.get(run_id)
        attempt = find_attempt(run, attempt)
        _require_metrics(run, names)
        if output is None:
            run.save_metrics(sys.stdout.buffer, *names, form=form, attempt=attempt)
        else:
            with output.open("wb") as target:
                run.save_metrics(target, *names, form=form, attempt=attempt)


def _require_metrics(run: "Run", names: tuple[str, ...]) -> None:
    """Refuses the first that the run has no metric of: a table without a row would not tell it from a typing error."""
    known = [one.name for one in run.metric_names()] if names else []
    for name in names:
        if name not in known:
            near = [repr(each) for each in get_close_matches(name[:_LONGEST_NAME], known, 3)]
            has = f"did you mean {name_some(near, 'or')}?" if near else f"it has {_some_of(known)}"
            raise click.UsageError(f"{run.id} has no metric {name!r}; {has}")


def _some_of(known: list[str]) -> str:
    return name_some([repr(name) for name in known]) or "none yet"


_LONGEST_NAME = 200
_MEDIA_HEADINGS = ("NAME", "KIND", "VALUES", "FIRST STEP", "LAST STEP")
_ENDINGS = {"image": "png", "text": "txt", "table": "csv", "histogram": "json"}
_NO_FILE_NAME = re.compile(r"[^A-Za-z0-9._-]+")


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--name", help="Only what was logged under this name.")
@click.option("--step", type=click.IntRange(min=0), help="Save only the values of this step.")
@click.option(
    "--save",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Save each value: images as PNG, tables as CSV, texts, histograms as JSON.",
)
@json_option
@server_options
def media(
    run_id: str, *, name: str | None, step: int | None, save: Path | None, as_json: bool, url: str | None
) -> None:
    """List what RUN logged beside numbers: images, histograms, tables and texts, by name with their steps."""
    with connect(url) as client:
        run = client.get(run_id)
        found = [series for series in run.media() if name is None or series.name == name]
        if as_json:
            click.echo(json_text(found))
        elif found:
            rows = ((one.name, one.kind, str(one.values), str(one.first_step), str(one.last_step)) for one in found)
            click.echo(table(_MEDIA_HEADINGS, list(rows)))
        else:
            what = "nothing beside numbers" if name is None else f"nothing beside numbers under {name!r}"
            click.echo(f"the run logged {what}; run.log takes drumline.Image, Histogram, Table and Text", err=True)
        if save is not None and found:
            values = (value for one in found for value in run.media().values(one.name, one.kind))
            _save_media((value for value in values if step in (None, value.step)), save, run)


def _save_media(values: Iterable["LoggedValue"], directory: Path, run: "Run") -> None:
    """Each value in a file of its own; several of one name and step are numbered."""
    directory.mkdir(parents=True, exist_ok=True)
    taken: set[str] = set()
    for value in values:
        # A name of a program's own is no path: what a file system or a shell might act on is left out.
        stem = f"{_NO_FILE_NAME.sub('_', value.name)[:100].lstrip('.') or '_'}-{value.step:08d}"
        number = next(n for n in range(1, len(taken) + 2) if f"{stem}-{n}.{_ENDINGS[value.kind]}" not in taken)
        file = f"{stem}-{number}.{_ENDINGS[value.kind]}"
        taken.add(file)
        (directory / file).write_bytes(_content(value))
    click.echo(f"saved {len(taken)} {'file' if len(taken) == 1 else 'files'} of {run.id} in {directory}", err=True)


def _content(value: "LoggedValue") -> bytes:
    if value.kind == "image":
        return value.png
    if value.kind == "text":
        return value.text.encode()
    if value.kind == "histogram":
        return f"{json_text(value.histogram)}\n".encode()
    text = io.StringIO()
    csv.writer(text).writerows([[_cell(name) for name in value.columns], *([*map(_cell, row)] for row in value.rows)])
    return text.getvalue().encode()


_FORMULA = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"


def _cell(value: object) -> object:
    """As the server's own CSV: text that a spreadsheet would take for a formula is told from one by an apostrophe."""
    return f"'{value}" if isinstance(value, str) and value[:1] in _FORMULA and value else value


_OPENS = (
    "To look at one, unpack it: `tensorboard --logdir DIR` (with xprof installed) opens the directory, "
    "https://ui.perfetto.dev the .trace.json.gz in it."
)
_PROFILE_HEADINGS = ("STEP", "RANK", "DEVICES", "SPAN", "COMPUTING", "IN COLLECTIVES", "IDLE", "FILE")


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--step", type=click.IntRange(min=0), help="Only those of this step.")
@click.option(
    "--save",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Save what jax.profiler wrote: a zip of each.",
)
@json_option
@server_options
def profiles(run_id: str, step: int | None, save: Path | None, as_json: bool, url: str | None) -> None:
    """List the steps of RUN that were traced, newest first: what devices did in them, mean over those of a process.

    `--record profile_every=N` of `submit` traces the last of every N calls of strategy.run.
    """
    with connect(url) as client:
        run = client.get(run_id)
        traced = run.profiles()
        found = [one for one in traced if step is None or one.step == step]
        if as_json:
            click.echo(json_text([one.details for one in found]))
        elif found:
            click.echo(table(_PROFILE_HEADINGS, [_row(one) for one in found]))
        else:
            which = "no step was traced" if step is None else f"step {step} was not traced"
            click.echo(f"{which}; --record profile_every=N of submit traces the last of every N calls", err=True)
        for gap in traced.lost:
            click.echo(f"{plural(gap.count or 1, 'traced step')} lost: {plain(gap.detail)}", err=True)
        if save is not None and found:
            _save_profile(found, save)


def _save_profile(found: list["StepProfile"], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    kept = [one for one in found if one.details.file_left_out is None]
    for one in kept:
        one.save(directory / one.file_name)
        click.echo(f"saved {directory / one.file_name}", err=True)
    if kept:
        click.echo(_OPENS, err=True)


def _row(one: "StepProfile") -> tuple[str, ...]:
    from drumline.resources.profiles import FILES_LEFT_OUT, UNMEASURED

    details = one.details
    reason = details.file_left_out
    file = size_text(details.file_bytes) if reason is None else FILES_LEFT_OUT[reason]
    where = (str(one.step), str(one.rank), str(details.devices))
    if details.unmeasured is not None:
        return (*where, UNMEASURED[details.unmeasured], "-", "-", "-", file)
    spent = (details.span_ns, details.computing_ns, details.collective_ns, details.idle_ns)
    return (*where, *(f"{(each or 0) / 1e6:.3g} ms" for each in spent), file)


_NAME_HEADINGS = ("NAME", "OP", "AXIS", "WHERE", "RECORDED", "FIRST STEP", "LAST STEP")
_REDUCTION_HEADINGS = ("STEP", "NAME", "NTH", "OP", "AXIS", "REPLICAS", "RESULT")
_PLACES = {"host": "outside of steps", "in_step": "in steps"}


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--name", help="Those of this name, step by step.")
@click.option("--step", type=click.IntRange(min=0), help="Those of this step.")
@click.option("--from", "first", type=click.IntRange(min=0), help="Those of this step and later ones.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many.")
@click.option("--explain", is_flag=True, help="Say of each what went in, how it came to its result, and replay it.")
@json_option
@server_options
def reductions(
    *,
    run_id: str,
    name: str | None,
    step: int | None,
    first: int | None,
    limit: int,
    explain: bool,
    as_json: bool,
    url: str | None,
) -> None:
    """List what RUN recorded of its reductions: by name, or with --name, --step or --from one by one.

    --explain needs one of these. Elements of large arrays are read from the server for it.
    """
    if step is not None and first is not None:
        raise click.UsageError("--step names one step and --from where to begin: give one of them")
    is_of_names = name is None and step is None and first is None
    if explain and is_of_names:
        raise click.UsageError("--explain needs --name, --step or --from; without --explain the names are listed")
    from drumline.resources.reductions import explain as explained

    with connect(url) as client:
        found = client.get(run_id).reductions(name)
        if is_of_names:
            _tell_names(found.names(), limit, as_json=as_json)
            return
        listed = list(islice(found.between(step if first is None else first, step), limit + 1))
        shown, has_more = listed[:limit], len(listed) > limit
        if explain:
            whole = [found.get(one.id) for one in shown]
            click.echo(json_text(whole) if as_json else "\n\n".join(plain(explained(one)) for one in whole))
        elif as_json:
            click.echo(json_text(shown))
        elif shown:
            click.echo(table(_REDUCTION_HEADINGS, [_reduction_row(one) for one in shown]))
    if not shown:
        click.echo("nothing of that was recorded; `drumline reductions RUN` lists the names", err=True)
    if has_more:
        click.echo(_say_more(listed[limit], limit, step), err=True)


def _tell_names(names: "tuple[ReductionName, ...]", limit: int, *, as_json: bool) -> None:
    if as_json:
        click.echo(json_text(names))
    elif names:
        click.echo(table(_NAME_HEADINGS, [_name_row(one) for one in names[:limit]]))
        if len(names) > limit:
            click.echo(f"and {len(names) - limit} more; --limit {len(names)} lists all", err=True)
    else:
        click.echo("the run recorded no reduction; --record reductions_every=N of submit says how often", err=True)


def _name_row(one: "ReductionName") -> tuple[str, ...]:
    steps = (str(step) for step in (one.steps[:1] + one.steps[-1:] if one.steps else ("-", "-")))
    return (one.name, one.op, _axis(one.axis), _PLACES[one.origin], str(one.recorded), *steps)


def _reduction_row(one: "ReductionSummary") -> tuple[str, ...]:
    result = f"{one.result:.6g}" if one.result is not None else "x".join(map(str, one.result_shape)) or "scalar"
    nth = f"{one.nth} of {one.of}" if one.of > 1 else ""
    return (str(one.step), one.name, nth, one.op, _axis(one.axis), str(one.replicas), result)


def _axis(axis: int | tuple[int, ...] | None) -> str:
    return "-" if axis is None else str(axis) if isinstance(axis, int) else ",".join(map(str, axis))


def _say_more(following: "ReductionSummary", limit: int, step: int | None) -> str:
    """How to see what comes after so many."""
    if step is not None or following.nth > 1:
        return f"there are more than {limit}; --limit takes up to 1000, --name one name of them"
    return f"there are more; --from {following.step} continues there"


_ARTIFACT_HEADINGS = ("NAME", "KIND", "SIZE", "FILES", "RANK", "HOST", "STATE", "SHA-256")


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--name", help="Only those of this name.")
@click.option(
    "--save",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Save those that are stored: files, and directories with all that is in them.",
)
@json_option
@server_options
def artifacts(run_id: str, *, name: str | None, save: Path | None, as_json: bool, url: str | None) -> None:
    """List the files and directories that RUN keeps, newest first, and how far each has come.

    A program keeps one by run.save_artifact; its host sends it, also once the run has ended.
    """
    with connect(url) as client:
        run = client.get(run_id)
        found = [one for one in run.artifacts() if name is None or one.name == name]
        if as_json:
            click.echo(json_text([one.details for one in found]))
        elif found:
            click.echo(table(_ARTIFACT_HEADINGS, [_artifact_row(one) for one in found]))
        else:
            what = "nothing" if name is None else f"nothing called {name!r}"
            click.echo(f"the run keeps {what}; run.save_artifact keeps a file or a directory", err=True)
        if save is not None and found:
            _save_artifacts(found, save)


def _artifact_row(one: "RunArtifact") -> tuple[str, ...]:
    details = one.details
    size = size_text(details.size_bytes)
    files = str(details.files) if details.is_directory else "-"
    digest = details.sha256.removeprefix("sha256:")[:12]
    return (one.name, details.kind or "-", size, files, str(details.rank), details.host_name, _state(one), digest)


def _state(one: "RunArtifact") -> str:
    details = one.details
    if one.is_stored:
        return "stored"
    if details.reason is not None:
        return f"lost: {details.reason}"
    return f"arriving, {100 * details.received_bytes // max(1, details.size_bytes)} %"


def _save_artifacts(found: list["RunArtifact"], directory: Path) -> None:
    """Each below its own name, older ones and those of other ranks with a number before it."""
    directory.mkdir(parents=True, exist_ok=True)
    taken: set[str] = set()
    for one in found:
        if not one.is_stored:
            click.echo(f"not saved: {one.name} ({_state(one)})", err=True)
            continue
        names = (one.name, *(f"{number}-{one.name}" for number in range(2, len(found) + 2)))
        file = next(name for name in names if name not in taken)
        taken.add(file)
        click.echo(f"saved {one.save(directory / file)}", err=True)
