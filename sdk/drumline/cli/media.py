"""`drumline media`."""

import csv
import io
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from drumline.cli.options import connect, find_run, json_option, server_options
from drumline.cli.terminal import json_text
from drumline.wording import table

if TYPE_CHECKING:
    from drumline import Run
    from drumline.resources.media import LoggedValue

_HEADINGS = ("NAME", "KIND", "VALUES", "FIRST STEP", "LAST STEP")
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
        run = find_run(client, run_id)
        found = [series for series in run.media() if name is None or series.name == name]
        if as_json:
            click.echo(json_text(found))
        elif found:
            rows = ((one.name, one.kind, str(one.values), str(one.first_step), str(one.last_step)) for one in found)
            click.echo(table(_HEADINGS, list(rows)))
        else:
            what = "nothing beside numbers" if name is None else f"nothing beside numbers under {name!r}"
            click.echo(f"the run logged {what}; run.log takes drumline.Image, Histogram, Table and Text", err=True)
        if save is not None and found:
            values = (value for one in found for value in run.media().values(one.name, one.kind))
            _save((value for value in values if step in (None, value.step)), save, run)


def _save(values: Iterable["LoggedValue"], directory: Path, run: "Run") -> None:
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


def _cell(value: object) -> object:
    """As the server's own CSV: text that a spreadsheet would take for a formula is told from one by an apostrophe."""
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" and value else value
