"""`drumline sweep`."""

import json
import re
from typing import TYPE_CHECKING, Any

import click

from drumline._flags import KeyValue
from drumline.cli.options import anyway_option, connect, json_option, server_options
from drumline.cli.submission import arguments, submission_options
from drumline.cli.terminal import json_text

if TYPE_CHECKING:
    from drumline.contracts.api import ProgramEntrypoint
    from drumline.contracts.sweeps import SweepSpec
    from drumline.program import PackedProgram

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
    from drumline.cli.parameters import parse_typed_value, takes_text

    if _RANGE.fullmatch(text) and not takes_text(offered, name):
        raise click.UsageError(f"--sweep {name}={text} is a range: say with --random N how many points to draw")
    if not takes_text(offered, name):
        try:
            return list(json.loads(f"[{text}]"))
        except ValueError:
            pass
    return [parse_typed_value(offered, name, part) for part in text.split(",") if part]


def _space(offered: "ProgramEntrypoint", name: str, text: str) -> Any:  # Any: values, or a Range
    from drumline.cli.parameters import takes_text
    from drumline.contracts.sweeps import Range

    found = _RANGE.fullmatch(text)
    if found is None or takes_text(offered, name):
        return _values(offered, name, text)
    kinds = {parameter.name: parameter.type for parameter in offered.parameters}
    scale, low, high = found.groups()
    return Range.model_validate(
        {"low": low, "high": high, "scale": "log" if scale else "linear", "whole": kinds[name] == "int"}
    )
