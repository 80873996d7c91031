"""`drumline ps`."""

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from drumline._flags import KeyValue
from drumline.cli.options import age, connect, json_option, json_text, principal_text, server_options
from drumline.wording import duration, number_text, rate_text, table

if TYPE_CHECKING:
    from drumline.contracts.api import RunSummary

_WORDS = {
    "queued": "QUEUED",
    "starting": "PLACED",
    "running": "RUNNING",
    "retrying": "RETRY_WAIT",
    "cancelling": "CANCELLING",
    "succeeded": "SUCCEEDED",
    "failed": "FAILED",
    "cancelled": "CANCELLED",
}
"""States as the dashboard's filter calls them."""
_FILTERS = ["state", "job", "version", "owner", "batch", "label"]
_LIVE = ("QUEUED", "PLACED", "RUNNING", "RETRY_WAIT", "CANCELLING")


class State(click.ParamType[str]):
    """A state, as the dashboard or the API calls it."""

    name = "state"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The API's name of the state."""
        from drumline.contracts.problems import nearest

        word = str(value).lower()
        if word in _WORDS:
            return _WORDS[word]
        if word.upper() not in _WORDS.values():
            suggestion = nearest(word, list(_WORDS)) or f"; one of {', '.join(_WORDS)}"
            self.fail(f"{value!r} is no state{suggestion}", param, ctx)
        return word.upper()


class Word(click.ParamType[str]):
    """A part of a job's name or the start of an id; neither has a colon, which a filter of the dashboard has."""

    name = "word"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word. Fails for a filter, and names the option to use in its place."""
        from drumline.contracts.problems import nearest

        key, colon, text = str(value).partition(":")
        if not colon:
            return key
        known = ", ".join(f"--{name}" for name in _FILTERS)
        message = f"{key!r} is no filter{nearest(key, _FILTERS)}; filter by {known}"
        if key in _FILTERS:
            message = f"{value!r} is a filter of the dashboard; use --{key} {text or key.upper()}"
        return self.fail(message, param, ctx)


@click.command()
@click.argument("words", nargs=-1, type=Word())
@click.option("--live", is_flag=True, help="Only runs that have not ended.")
@click.option("--state", "states", type=State(), multiple=True, help="Only runs in this state; repeatable.")
@click.option("--job", help="Only runs of this job.")
@click.option("--version", type=click.IntRange(1), help="Only runs of this version of the job.")
@click.option("--owner", help="Only runs that this one submitted: a name, or the id of a token or session.")
@click.option("--mine", is_flag=True, help="Only runs submitted under the name that you have here.")
@click.option("--batch", help="Only runs of this batch.")
@click.option("--label", "labels", type=KeyValue(), multiple=True, help="Only runs with this label; repeatable.")
@click.option("--where", default="", help='Only runs that match, such as "params.lr > 0.1 and loss < 0.3".')
@click.option("--archived", is_flag=True, help="Archived runs too.")
@click.option("--sort", default="-created", show_default=True, help="By a field; with - before it the greatest first.")
@click.option("--columns", default="", help='In place of the usual columns, such as "params.lr,loss,owner".')
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="At most so many.")
@json_option
@server_options
def ps(words: tuple[str, ...], live: bool, limit: int, as_json: bool, url: str | None, **wanted: Any) -> None:
    """List runs, newest first: those whose job's name has WORDS in it, or whose id begins or ends so."""
    if wanted["version"] and not wanted["job"]:
        raise click.UsageError("--version needs --job: each job counts its own versions")
    if wanted["owner"] and wanted["mine"]:
        raise click.UsageError("--mine and --owner say the same in two ways; use one of them")
    states = [*wanted["states"], *(_LIVE if live else ())]
    columns = [name.strip() for name in wanted["columns"].split(",") if name.strip()]
    with connect(url) as client:
        if wanted["mine"]:
            wanted["owner"] = client.who().principal
        if wanted["where"] or wanted["archived"] or columns or wanted["sort"] not in ("-created", "created"):
            where = _where(" ".join(words), states, wanted)
            found = iter(client.runs(where, sort=wanted["sort"], columns=columns, archived=wanted["archived"]))
        else:
            found = client.list(
                states=states,
                job=wanted["job"],
                version=wanted["version"],
                owner=wanted["owner"],
                batch=wanted["batch"],
                labels=dict(wanted["labels"]),
                search=" ".join(words) or None,
                sort=wanted["sort"],
            )
        runs = list(islice(found, limit))
    if as_json:
        click.echo(json_text(runs))
    elif not runs:
        click.echo("no runs", err=True)
    elif columns:
        rows = [(run.id, *(_cell(name, run.fields.get(name)) for name in columns)) for run in runs]
        click.echo(table(("RUN", *(name.upper() for name in columns)), rows))
    else:
        headings = ("RUN", "JOB", "OWNER", "STATE", "REPLICAS", "STEPS", "RATE", "AGE")
        click.echo(table(headings, [_row(run) for run in runs]))


def _where(words: str, states: Sequence[str], wanted: dict[str, Any]) -> str:  # Any: values of options
    """All that is asked for as one filter."""
    parts = []
    if words:
        parts.append(f"(job ~ {_quoted(words)} or id ~ {_quoted(words)})")
    if states:
        parts.append(f"state in ({', '.join(states)})")
    parts += [f"{name} = {_quoted(str(wanted[name]))}" for name in ("job", "owner", "batch") if wanted[name]]
    if wanted["version"]:
        parts.append(f"version = {wanted['version']}")
    parts += [f"labels.{_quoted(key)} = {_quoted(value)}" for key, value in wanted["labels"]]
    if parts and wanted["where"]:  # last, and alone as it is: the place of an error is that in what was typed
        parts.append(f"({wanted['where']})")
    return " and ".join(parts) or str(wanted["where"])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _cell(name: str, value: float | str | None) -> str:
    if name in ("duration", "total_duration") and isinstance(value, (int, float)):
        return duration(value)
    return "-" if value is None else value if isinstance(value, str) else number_text(value)


def _row(run: "RunSummary") -> tuple[str, ...]:
    progress = run.progress
    total = f"/{progress.total_steps}" if progress.total_steps else ""
    step = "-" if progress.step is None else f"{progress.step}{total}"
    rate = f"{rate_text(progress.steps_per_s)}/s" if progress.steps_per_s is not None else "-"
    job, gang = f"{run.job} v{run.version}", f"{run.replicas} {run.strategy}"
    return run.id, job, principal_text(run.owner), _state(run), gang, step, rate, age(run.created_at)


def _state(run: "RunSummary") -> str:
    """The state, and in parentheses what a waiting run waits for, why one did not succeed, or what is odd of it."""
    if run.wait is not None:
        return f"{run.state} ({run.wait.phrase})"
    if run.reason is not None and run.state in ("FAILED", "CANCELLED") and run.reason.code.value != run.state.value:
        return f"{run.state} ({run.reason.code})"
    if run.not_finite:
        return f"{run.state} ({', '.join(sorted(set(run.not_finite.values())))} in its result)"
    return str(run.state)
