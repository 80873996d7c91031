"""What a run can be asked: `drumline why`, `stacks`, `usage`, `ledger`, `arrivals`, `checkpoints`, `planned`,
`watch`.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

import click

from drumline._flags import Duration
from drumline.cli.options import age, connect, json_option, json_text, logs_option, server_options
from drumline.wording import share_text, size_text, spent_text, table

if TYPE_CHECKING:
    from drumline.contracts.api import Checkpoint, Ledger, LedgerLine, LedgerSum, MemberUsage


@click.command()
@click.argument("run_id", metavar="RUN")
@json_option
@server_options
def why(run_id: str, as_json: bool, url: str | None) -> None:
    """Say what a run waits for, and what would let it start.

    The rule that blocks it, what was seen, its place in the queue, and when it is expected to start. With --json, the
    API's `why`: `null` for a run that doesn't wait.
    """
    from drumline.cli.watching import show_warnings
    from drumline.resources.text import why_lines

    with connect(url) as client:
        run = client.get(run_id)
    reason = run.details.why
    if as_json:
        click.echo(json_text(reason))
    elif reason is not None:
        click.echo("\n".join([f"{run.id}  {run.state}", *why_lines(reason)]))
    else:
        where = "has ended" if run.ended else "is not held up"
        click.echo(f"{run.id}  {run.state}  It {where}: it waits for nothing.")
    show_warnings(run.details.warnings)


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--timeout", type=Duration(), help="Time that the processes have to answer. [default: 5s]")
@json_option
@server_options
def stacks(run_id: str, timeout: float | None, as_json: bool, url: str | None) -> None:
    """Say where each process of a live run stands: phase, last program, stacks. The program is not disturbed."""
    from drumline.resources.text import stacks_text

    with connect(url) as client:
        run = client.get(run_id)
        told = run.ask_stacks() if timeout is None else run.ask_stacks(timeout)
    if as_json:
        click.echo(json_text(told))
        return
    for member in told.members:
        click.echo(f"rank {member.rank} on {member.host_name}: {stacks_text(member)}\n")


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--call", type=click.IntRange(min=0), help="As of that call of strategy.run. [default: now]")
@json_option
@server_options
def arrivals(run_id: str, call: int | None, as_json: bool, url: str | None) -> None:
    """Say when each member of RUN comes to the collectives, and whom the others wait for.

    Of the last sampled steps: medians, and in how many of them each came last.
    """
    from drumline.resources.arrival_text import arrivals_text

    with connect(url) as client:
        found = client.get(run_id).arrivals(call)
    click.echo(json_text(found) if as_json else arrivals_text(found))


@click.command()
@click.argument("run_id", metavar="RUN")
@json_option
@server_options
def exchanges(run_id: str, as_json: bool, url: str | None) -> None:
    """Say what the replicas of RUN exchange in a step: kinds, bytes, and what of it crosses between hosts."""
    from drumline.resources.exchange_text import exchanges_text

    with connect(url) as client:
        found = client.get(run_id).placement.exchanges
    click.echo(json_text(found) if as_json else exchanges_text(found))


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--step", type=click.IntRange(min=0), help="As of then. [default: now]")
@json_option
@server_options
def usage(run_id: str, step: int | None, as_json: bool, url: str | None) -> None:
    """Say what the processes of each member of RUN use of its host, and how full its devices are."""
    with connect(url) as client:
        found = list(client.get(run_id).usage(step))
    click.echo(json_text(found) if as_json else _usage_text(found))


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
            run = client.get(run_id)
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


@click.command()
@click.argument("run_id", metavar="RUN")
@json_option
@server_options
def replicas(run_id: str, as_json: bool, url: str | None) -> None:
    """Say how long each replica of RUN computes and waits for the others, in its newest traced steps.

    Steps are traced where the run was submitted with record.profile_every.
    """
    from drumline.resources.arrival_text import replicas_text

    with connect(url) as client:
        found = client.get(run_id).replica_times()
    click.echo(json_text(found) if as_json else replicas_text(found))


def _usage_text(found: "Sequence[MemberUsage]") -> str:
    headings = ("RANK", "HOST", "PROCESSORS", "MEMORY", "PROCESSES", "DEVICE MEMORY", "STEP", "AT")
    return table(headings, [_usage_row(member) for member in found]) if found else "no member was claimed yet"


def _usage_row(member: "MemberUsage") -> tuple[str, ...]:
    used = member.usage
    if used is None or member.at is None:
        return (str(member.rank), member.host_name, "not told yet", *[""] * 5)
    fullest = max(used.devices, key=lambda device: device.used_bytes, default=None)
    return (
        str(member.rank),
        member.host_name,
        f"{used.processor_percent / 100:.2f} of {member.host_processors}",
        f"{size_text(used.memory_bytes)} of {size_text(member.host_memory_bytes)}",
        str(used.processes),
        "-" if fullest is None else size_text(fullest.used_bytes),
        "-" if member.step is None else str(member.step),
        f"{member.at:%H:%M:%S}",
    )


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
        share = share_text(wall, wall_s) if wall_s else "-"
        priced = (f"{its_cost:.2f} {currency}".rstrip(),) if its_cost is not None else ("-",)
        return (name, spent_text(wall), share, spent_text(device), *(priced if cost is not None else ()))

    rows = [row(line.name.replace("_", " "), line.wall_s, line.device_s, line.cost) for line in lines]
    return table(headings, [*rows, row("in all", wall_s, device_s, cost)])


@click.command()
@click.argument("run_id", metavar="RUN")
@json_option
@server_options
def checkpoints(run_id: str, as_json: bool, url: str | None) -> None:
    """List the checkpoints of RUN, the one that it would resume from first."""
    with connect(url) as client:
        run = client.get(run_id)
        found = list(run.checkpoints())
        attempts = {attempt.id: attempt.number for attempt in run.attempts}
    if as_json:
        click.echo(json_text(found))
    elif not found:
        click.echo(f"{run.id} has no checkpoints", err=True)
    else:
        headings = ("CHECKPOINT", "STEP", "ATTEMPT", "STATE", "SIZE", "AGE", "HOST")
        click.echo(table(headings, [_row(checkpoint, attempts[checkpoint.attempt]) for checkpoint in found]))


def _row(checkpoint: "Checkpoint", attempt: int) -> tuple[str, ...]:
    return (
        checkpoint.id,
        str(checkpoint.step),
        str(attempt),
        checkpoint.state.lower(),
        size_text(checkpoint.size_bytes),
        age(checkpoint.created_at),
        "shared" if checkpoint.shared else checkpoint.host_name,
    )


@click.command()
@click.argument("run_id", metavar="RUN")
@json_option
@server_options
def planned(run_id: str, as_json: bool, url: str | None) -> None:
    """Compare a run with the plan that it was submitted from.

    Exits with 1 where the run did something else than planned.
    """
    from drumline.cli.exits import OK, RUN_FAILED
    from drumline.resources.text import comparison_text

    with connect(url) as client:
        comparison = client.get(run_id).planned
    click.echo(json_text(comparison) if as_json else comparison_text(comparison))
    raise SystemExit(RUN_FAILED if comparison.differences else OK)


@click.command()
@click.argument("run_id", metavar="RUN")
@logs_option(default=False)
@json_option
@server_options
def watch(run_id: str, with_logs: bool, as_json: bool, url: str | None) -> None:
    """Watch a run until it ends; exits with 0 if it succeeded, 1 if it failed."""
    from drumline.cli.watching import report, watch_to_end

    with connect(url) as client:
        run = client.get(run_id)
        click.echo(f"{run.id}  {run.url}", err=as_json)
        if not run.ended:
            watch_to_end(run, with_logs=with_logs)
        report(run, as_json=as_json, with_logs=with_logs)
