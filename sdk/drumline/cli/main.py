"""The `drumline` command itself: finds commands by name and loads only the one that runs."""

import sys
from importlib import import_module
from importlib.metadata import entry_points

import click
from click.exceptions import NoSuchCommand

from drumline.cli.exits import DETACHED, OK, USAGE, exit_code, explain

PLUGIN_GROUP = "drumline.commands"
_OWN = {
    "submit": ("submit", "Submit a program and watch its run."),
    "sweep": ("batches", "Submit a program once for each point of a parameter sweep."),
    "plan": ("submit", "Say what a run would do, and run nothing."),
    "planned": ("details", "Compare a run with its plan."),
    "ps": ("ps", "List runs."),
    "watch": ("details", "Watch a run until it ends."),
    "why": ("details", "Say what a run waits for."),
    "logs": ("logs", "Print a run's output."),
    "metrics": ("recorded", "Print every point of a run's metrics."),
    "media": ("recorded", "List and save what a run logged beside numbers."),
    "reductions": ("recorded", "List a run's reductions, and say how each came to its result."),
    "stacks": ("details", "Say where each process of a run stands."),
    "usage": ("details", "Say what a run uses of its hosts and devices."),
    "ledger": ("details", "Say where the time of a run went, or of many."),
    "profiles": ("recorded", "List and save the traced steps of a run."),
    "replicas": ("details", "Say which replica the others wait for, by traced steps."),
    "artifacts": ("recorded", "List and save the files that a run keeps."),
    "arrivals": ("details", "Say which member of a gang the others wait for."),
    "exchanges": ("details", "Say what the replicas of a run exchange in a step."),
    "checkpoints": ("details", "List the checkpoints of a run."),
    "cancel": ("runs", "Stop a run."),
    "mark": ("runs", "Label, note, star or archive runs."),
    "delete": ("runs", "Delete runs that have ended, for good."),
    "retention": ("runs", "Show or change how long ended runs are kept."),
    "rerun": ("runs", "Run an old run again."),
    "jobs": ("jobs", "List jobs; compare, roll back and run their versions."),
    "batches": ("batches", "List batches; show and cancel one, and what came of it."),
    "hosts": ("hosts", "List, drain and release the machines with a worker."),
    "webhooks": ("webhooks", "List, make, change, test and delete addresses that alerts of runs are posted to."),
    "open": ("server", "Open the dashboard in a browser."),
    "version": ("server", "Print the versions of client and server."),
}
"""The module of `drumline.cli` that has the command, and what it does."""
_PLUGINS = {
    "up": ("all", "Start everything on this machine."),
    "server": ("server", "Run a server."),
    "worker": ("worker", "Run a worker on this machine."),
}
"""Commands of our own wheel that need an extra: which, and what they do (asking them would load them)."""


class LazyGroup(click.Group):
    """Commands of modules of `drumline.cli`, and entry points of other packages, imported when they are run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every name, loaded or not."""
        found = {entry.name for entry in entry_points(group=PLUGIN_GROUP)}
        return [*_OWN, *(name for name in _PLUGINS if name in found), *sorted(found - _PLUGINS.keys())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports the command of that name; one whose extra is missing explains itself when it is run."""
        if cmd_name in _OWN:
            name, _ = _OWN[cmd_name]
            module = import_module(f"drumline.cli.{name}")
            command: click.Command = getattr(module, cmd_name.replace("open", "open_"))
            return command
        for entry in entry_points(group=PLUGIN_GROUP, name=cmd_name):
            try:
                plugin: click.Command = entry.load()
            except ModuleNotFoundError as error:
                if (error.name or "").startswith("drumline"):
                    raise
                raise MissingExtraError(cmd_name, error) from error
            return plugin
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, written without loading any."""
        helps = {**_OWN, **_PLUGINS}
        rows = [(name, helps.get(name, ("", ""))[1]) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, and offers the nearest name for one that does not exist."""
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as error:
            raise NoSuchCommand(args[0], possibilities=self.list_commands(ctx), ctx=ctx) from error


class MissingExtraError(click.UsageError):
    """A command whose packages are not installed."""

    def __init__(self, command: str, error: ModuleNotFoundError) -> None:
        extra = _PLUGINS.get(command, (None, ""))[0]
        fix = f"pip install 'drumline[{extra}]'" if extra else f"install the package that has {error.name}"
        if extra not in (None, "all"):
            fix += " (or 'drumline[all]', which has everything)"
        super().__init__(f"`drumline {command}` needs {error.name}, which is not installed: {fix}")


EXIT_CODES = (
    "Exit codes: 0 ok, 1 the run failed or was cancelled, 2 wrong usage, 3 the server cannot be reached or failed, "
    "130 detached by Ctrl-C."
)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXIT_CODES)
def drumline() -> None:
    """Run distributed-strategy jobs on JAX devices, and watch every replica."""


def main(args: list[str] | None = None) -> None:
    """Runs the command line, and turns every error of ours into a sentence and an exit code."""
    try:
        code = drumline.main(args, prog_name="drumline", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else OK)
    except click.ClickException as error:
        error.show()
        sys.exit(USAGE)
    except click.Abort:
        sys.exit(DETACHED)
    except BrokenPipeError:
        sys.stderr.close()  # the reader went away, as `| head` does; Python would complain once more at exit
        sys.exit(OK)
    except Exception as error:
        failure = exit_code(error)
        if failure is None:
            raise
        click.echo(explain(error), err=True)
        sys.exit(failure)
