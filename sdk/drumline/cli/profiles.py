"""`drumline profiles`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from drumline.cli.options import connect, find_run, json_option, server_options
from drumline.cli.terminal import json_text
from drumline.wording import table

if TYPE_CHECKING:
    from drumline.resources.profiles import StepProfile

_OPENS = (
    "To look at one, unpack it: `tensorboard --logdir DIR` (with xprof installed) opens the directory, "
    "https://ui.perfetto.dev the .trace.json.gz in it."
)
_HEADINGS = ("STEP", "RANK", "DEVICES", "SPAN", "COMPUTING", "IN COLLECTIVES", "IDLE", "FILE")


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
        run = find_run(client, run_id)
        found = [one for one in run.profiles() if step is None or one.step == step]
        if as_json:
            click.echo(json_text([one.details for one in found]))
        elif found:
            click.echo(table(_HEADINGS, [_row(one) for one in found]))
        else:
            which = "no step was traced" if step is None else f"step {step} was not traced"
            click.echo(f"{which}; --record profile_every=N of submit traces the last of every N calls", err=True)
        if save is not None and found:
            _save(found, save)


def _save(found: list["StepProfile"], directory: Path) -> None:
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
    file = f"{details.file_bytes / 1024:.1f} KiB" if reason is None else FILES_LEFT_OUT[reason]
    where = (str(one.step), str(one.rank), str(details.devices))
    if details.unmeasured is not None:
        return (*where, UNMEASURED[details.unmeasured], "-", "-", "-", file)
    spent = (details.span_ns, details.computing_ns, details.collective_ns, details.idle_ns)
    return (*where, *(f"{(each or 0) / 1e6:.3g} ms" for each in spent), file)
