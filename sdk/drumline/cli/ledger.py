"""`drumline ledger`."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

import click

from drumline._flags import Duration
from drumline.cli.options import connect, find_run, json_option, server_options
from drumline.cli.terminal import json_text
from drumline.wording import duration, table

if TYPE_CHECKING:
    from drumline.contracts.api import Ledger, LedgerLine, LedgerSum

_LAST_S = 30 * 86_400.0


@click.command()
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--by", type=click.Choice(("owner", "host", "project")), default="owner", help="Without RUN: of each.")
@click.option("--last", type=Duration(), default=_LAST_S, help="Without RUN: of runs that ended since. [default: 30d]")
@json_option
@server_options
def ledger(
    run_id: str | None, by: Literal["owner", "host", "project"], last: float, as_json: bool, url: str | None
) -> None:
    """Say where the time of RUN went, every second of its life under a name; without RUN that of all that ended.

    Of RUN also what a step takes, and how much of the chips it uses.
    """
    from drumline.resources.step_text import step_text

    with connect(url) as client:
        if run_id is not None:
            run = find_run(client, run_id)
            found = run.ledger()
            click.echo(json_text(found) if as_json else _ledger_text(found))
            if not as_json and (step := step_text(run.progress)):
                click.echo(f"\n{step}")
            return
        since = datetime.now(UTC) - timedelta(seconds=last)
        sums = list(client.ledger(by, start=since))
    if as_json:
        click.echo(json_text(sums))
    elif not sums:
        click.echo(f"no run ended since {since:%Y-%m-%d %H:%M} UTC", err=True)
    else:
        click.echo("\n\n".join(_sum_text(each) for each in sums))


def _ledger_text(found: "Ledger") -> str:
    return _lines_text(found.lines, found.wall_s, found.device_s, found.cost, found.currency)


def _sum_text(found: "LedgerSum") -> str:
    runs = "1 run" if found.runs == 1 else f"{found.runs} runs"
    return (
        f"{found.label}, {runs}\n{_lines_text(found.lines, found.wall_s, found.device_s, found.cost, found.currency)}"
    )


def _lines_text(
    lines: Sequence["LedgerLine"], wall_s: float, device_s: float, cost: float | None, currency: str
) -> str:
    headings = ("WHAT", "TIME", "SHARE", "DEVICE TIME", *(("COST",) if cost is not None else ()))

    def row(name: str, wall: float, device: float, its_cost: float | None) -> tuple[str, ...]:
        share = f"{100 * wall / wall_s:.1f} %" if wall_s else "-"
        priced = (f"{its_cost:.2f} {currency}".rstrip(),) if its_cost is not None else ("-",)
        return (name, duration(wall), share, duration(device), *(priced if cost is not None else ()))

    rows = [row(line.name.replace("_", " "), line.wall_s, line.device_s, line.cost) for line in lines]
    return table(headings, [*rows, row("in all", wall_s, device_s, cost)])
