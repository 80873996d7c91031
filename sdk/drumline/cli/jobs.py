"""`drumline jobs`: the jobs of the project, and the versions of one."""

from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from drumline._flags import KeyValue
from drumline.cli.options import (
    age,
    anyway_option,
    connect,
    detach_option,
    json_option,
    json_text,
    logs_option,
    principal_text,
    retries_of,
    retry_options,
    server_options,
    spread_option,
)
from drumline.wording import plain, table

if TYPE_CHECKING:
    from drumline.contracts import api

_STRATEGY_DEFAULTS = (None, "auto", "global")


@click.group(invoke_without_command=True)
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="At most so many, by name.")
@json_option
@server_options
@click.pass_context
def jobs(context: click.Context, limit: int, as_json: bool, url: str | None) -> None:
    """List the jobs; or look at the versions of one."""
    if context.invoked_subcommand is not None:
        return
    with connect(url) as client:
        found = list(islice(client.jobs(), limit))
    if as_json:
        click.echo(json_text(found))
    elif not found:
        click.echo("no jobs: submit a program with `drumline submit PROGRAM.py`", err=True)
    else:
        rows = [
            (job.name, f"v{job.current_version}", str(job.latest_version), str(job.runs), age(job.last_run_at))
            for job in found
        ]
        click.echo(table(("JOB", "CURRENT", "VERSIONS", "RUNS", "LAST RUN"), rows))


@jobs.command()
@click.argument("job", metavar="JOB")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="At most so many, newest first.")
@json_option
@server_options
def versions(job: str, limit: int, as_json: bool, url: str | None) -> None:
    """List the versions of JOB, newest first; a star marks the current one."""
    with connect(url) as client:
        shown = client.job(job)
        found = list(islice(shown.versions(), limit))
    if as_json:
        click.echo(json_text(found))
        return
    rows = [_version_row(version, shown.details.current_version) for version in found]
    click.echo(table(("VERSION", "ENTRYPOINT", "STRATEGY", "RUNS", "MADE", "BY", "CONTENT"), rows))


@jobs.command()
@click.argument("job", metavar="JOB")
@click.argument("old", metavar="[OLD]", type=click.IntRange(1), required=False)
@click.argument("new", metavar="[NEW]", type=click.IntRange(1), required=False)
@json_option
@server_options
def diff(job: str, old: int | None, new: int | None, as_json: bool, url: str | None) -> None:
    """Show what changed from version OLD of JOB to NEW.

    NEW is the newest by default, OLD the one before NEW.
    """
    with connect(url) as client:
        shown = client.job(job)
        after = new or shown.details.latest_version
        found = shown.diff(old or max(1, after - 1), after)
    click.echo(json_text(found) if as_json else plain(_diff_text(found)))


@jobs.command()
@click.argument("job", metavar="JOB")
@click.argument("version", metavar="VERSION", type=click.IntRange(1))
@json_option
@server_options
def rollback(job: str, version: int, as_json: bool, url: str | None) -> None:
    """Make VERSION the current version of JOB. Versions and runs stay as they are."""
    with connect(url) as client:
        details = client.job(job).rollback(version).details
    click.echo(json_text(details) if as_json else f"{details.name}  current version v{details.current_version}")


@jobs.command()
@click.argument("job", metavar="JOB")
@click.option("--version", type=click.IntRange(1), help="Number of the version [default: the current one].")
@click.option("-n", "--replicas", type=int, default=1, show_default=True, help="How many replicas run in step.")
@spread_option
@retry_options
@click.option("-p", "--parameter", "parameters", type=KeyValue(), multiple=True, help="A parameter; repeatable.")
@click.option("--label", "labels", type=KeyValue(), multiple=True, help="A label of the run; repeatable.")
@click.option("--wait-for-devices", is_flag=True, help="Queue the run even if no host could hold it now.")
@anyway_option
@detach_option
@logs_option(default=True)
@json_option
@server_options
def run(job: str, url: str | None, as_json: bool, detach: bool, with_logs: bool, **wanted: Any) -> None:
    """Run the current version of JOB, or another one, without its source."""
    from drumline.cli.submit import parse_parameters
    from drumline.cli.watching import follow

    with connect(url) as client:
        chosen = client.job(job)
        version = chosen.version(wanted["version"])
        parameters = parse_parameters(client.entrypoint(version.program), dict(wanted["parameters"]))
        started = chosen.run(
            version=version.number,
            replicas=wanted["replicas"],
            spread=wanted["spread"],
            retries=retries_of(wanted),
            parameters=parameters,
            labels=dict(wanted["labels"]),
            wait_for_devices=wanted["wait_for_devices"],
            anyway=wanted["anyway"],
        )
        follow(started, detach=detach, as_json=as_json, with_logs=with_logs)


def _version_row(version: "api.JobVersion", current: int) -> tuple[str, ...]:
    number = f"v{version.number}{' *' if version.number == current else ''}"
    options = version.strategy.model_dump(exclude={"kind"})
    chosen = "".join(f" {name}={value}" for name, value in options.items() if value not in _STRATEGY_DEFAULTS)
    content = version.content_hash.removeprefix("sha256:")[:12]
    return (
        number,
        version.program.entrypoint,
        f"{version.strategy.kind}{chosen}",
        "-" if version.runs is None else str(version.runs),
        age(version.created_at),
        principal_text(version.created_by),
        content,
    )


def _diff_text(found: "api.VersionDiff") -> str:
    import json

    lines = [f"{found.job}  v{found.old} -> v{found.new}"]
    if not found.fields and not found.files:
        lines.append("nothing changed")
    lines += [f"  {field.path}: {json.dumps(field.old)} -> {json.dumps(field.new)}" for field in found.fields]
    for file in found.files:
        lines += ["", f"{file.change} {file.path}  {_file_note(file)}".rstrip()]
        lines += [file.diff] if file.diff else []
    hidden = found.files_changed - len(found.files)
    if hidden:
        lines += ["", f"and {hidden} more files"]
    return "\n".join(lines)


def _file_note(file: "api.FileChange") -> str:
    match file.content:
        case "text":
            return f"+{file.added_lines} -{file.removed_lines}"
        case "binary":
            return f"binary, {file.old_bytes or 0} -> {file.new_bytes or 0} bytes"
        case "too_large":
            return f"too large to compare by line, {file.old_bytes or 0} -> {file.new_bytes or 0} bytes"
        case "cut":
            return "left out: this comparison is long already"
