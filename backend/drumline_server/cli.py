"""Commands of the server: `drumline up` and `drumline server ...`. Nothing heavy is imported before it is needed."""

import asyncio
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from drumline._preload import without_collection
from drumline.cli.exits import SERVER

if TYPE_CHECKING:
    from drumline_server.app.local import LocalApi
    from drumline_server.app.up import UpOptions
    from drumline_server.base.settings import Settings

for _package in ("fastapi", "uvicorn", "sqlalchemy", "alembic", "celery", "pydantic_settings"):
    if find_spec(_package) is None:
        raise ModuleNotFoundError(f"No module named {_package!r}", name=_package)

_data_dir = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="DRUMLINE_DATA_DIR",
    default=Path("~/.drumline"),
    show_default=True,
    help="Where the database, bundles and keys are kept.",
)


@click.command()
@_data_dir
@click.option("--host", default="127.0.0.1", show_default=True, help="Loopback address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=7700, show_default=True, help="0 takes a free port.")
@click.option(
    "--cpu-devices",
    type=click.IntRange(1, 1024),
    default=8,
    show_default=True,
    help="Simulated CPU devices where there is no accelerator.",
)
@click.option(
    "--simulate",
    multiple=True,
    metavar="SLICE",
    help="Slice whose hosts this machine stands for, in place of its own devices: v4:2x2x4, v5e-16, gpu:8; repeatable.",
)
@click.option("--no-worker", is_flag=True, help="Start no worker on this machine.")
@click.option("--parent-fd", type=int, hidden=True, help="At its end of file everything stops.")
def up(
    *,
    data_dir: Path,
    host: str,
    port: int,
    cpu_devices: int,
    simulate: tuple[str, ...],
    no_worker: bool,
    parent_fd: int | None,
) -> int:
    """Start everything on this machine: server, dashboard and a worker, until Ctrl-C."""
    from drumline_server.app.up import UpOptions
    from drumline_server.base.errors import PartError, StartError

    if simulate and no_worker:
        raise click.UsageError("--simulate starts workers, and --no-worker none; leave one of them out")
    root = data_dir.expanduser().absolute()
    options = UpOptions(root, host, port, cpu_devices, not no_worker, parent_fd, simulate)
    try:
        code = asyncio.run(_run_up(options))
    except PartError as error:
        click.echo(f"Error: {error}", err=True)
        code = SERVER
    except StartError as error:
        raise click.ClickException(str(error)) from None
    sys.exit(code)


@click.group()
def server() -> None:
    """Run and administer a server."""


@server.command()
@click.option("--host", help="Address to listen on; default DRUMLINE_HOST or 127.0.0.1.")
@click.option("--port", type=click.IntRange(0, 65535), help="0 takes a free port; default DRUMLINE_PORT or 7700.")
@click.option("--parent-fd", type=int, hidden=True, help="At its end of file the server stops.")
@click.option("--ready-fd", type=int, hidden=True, help="Gets one line of JSON once the server answers.")
@click.option("--listen-fd", type=int, hidden=True, help="A listening socket to serve on, in place of host and port.")
def api(host: str | None, port: int | None, parent_fd: int | None, ready_fd: int | None, listen_fd: int | None) -> None:
    """Serve the API, the dashboard and the loops until SIGTERM."""
    with without_collection():
        settings = _settings(host=host, port=port)
        from drumline_server.app.serve import ParentPipes, serve
        from drumline_server.base.errors import StartError

    try:
        serve(settings, ParentPipes(parent_fd, ready_fd, listen_fd))
    except StartError as error:
        raise click.ClickException(str(error)) from None


@server.command()
def migrate() -> None:
    """Bring the database's tables to the form that this version needs."""
    settings = _settings()
    from drumline_server.app.local import prepare
    from drumline_server.base.errors import StartError
    from drumline_server.storage.database import migrate as bring_up_to_date
    from drumline_server.storage.database import newest_revision

    try:
        prepare(settings.data_dir)
        bring_up_to_date(settings.url, click.echo)
    except StartError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"The database is at revision {newest_revision()}.")


@server.command()
def adopt_store() -> None:
    """Make the store of programs the database's own, in place of one that is lost for good. Stop all servers first."""
    settings = _settings()
    from drumline_server.app.local import prepare
    from drumline_server.base.errors import StartError
    from drumline_server.base.settings import SystemClock
    from drumline_server.storage.blobs import adopt_store as adopt
    from drumline_server.storage.blobs import open_store
    from drumline_server.storage.database import require_current

    try:
        prepare(settings.data_dir)
        require_current(settings.url)
        adopted = adopt(settings.url, open_store(settings), now=SystemClock().now())
    except StartError as error:
        raise click.ClickException(str(error)) from None
    place = settings.store or settings.data_dir
    click.echo(f"{place} is the {'store' if settings.store else 'data directory'} of this database from now on.")
    for table, (what, then) in _LACKED.items():
        if adopted[table].missing:
            click.echo(
                f"{adopted[table].missing} of the {adopted[table].named} {what} are not in it: {then}.", err=True
            )


_LACKED = {
    "bundle": ("bundles that the database knows", "runs of them fail until the same programs are submitted again"),
    "artifact": ("contents of artifacts", "whoever downloads one is told so"),
    "media": ("large images, texts and tables", "whoever looks at one is told so"),
    "profile": ("files of profiles", "whoever downloads one is told so; their lanes are in the database"),
}
"""What a store may lack, by table, and what becomes of that."""


@server.command()
@click.option("--name", default="drumline server token", show_default=True, help="What the token is called in lists.")
@click.option(
    "--kind",
    type=click.Choice(["pat", "enr"]),
    default="pat",
    show_default=True,
    help="pat: for people and programs; enr: enrols one worker, once.",
)
@click.option(
    "--role",
    type=click.Choice(["viewer", "submitter", "operator", "admin"]),
    default="submitter",
    show_default=True,
    help="What its holder may do.",
)
@click.option("--expires-in-s", type=click.IntRange(60, 7_776_000), help="Lifetime in seconds.")
def token(name: str, kind: str, role: str, expires_in_s: int | None) -> None:
    """Make a token with the admin token of this machine's server, and print it: it is shown only here."""
    from drumline_server.base.errors import LocalApiError

    try:
        click.echo(_local_api().create_token(name, kind, role, expires_in_s))
    except LocalApiError as error:
        raise click.ClickException(str(error)) from None


@server.command()
def login_link() -> None:
    """Print a link that signs a browser in to this machine's server, once."""
    from drumline_server.base.errors import LocalApiError

    try:
        click.echo(_local_api().login_link())
    except LocalApiError as error:
        raise click.ClickException(str(error)) from None


async def _run_up(options: "UpOptions") -> int:
    from drumline_server.app.up import Up

    return await Up(options, click.echo, lambda text: click.echo(f"Warning: {text}", err=True)).run()


def _settings(**given: object) -> "Settings":
    """The settings of the environment, with what was given on the command line."""
    from pydantic import ValidationError

    from drumline_server.base.settings import Settings

    try:
        return Settings.model_validate({name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = "_".join(("DRUMLINE", *(str(part).upper() for part in first["loc"])))
        message = first["msg"].removeprefix("Value error, ")
        raise click.ClickException(f"{name}: {message}" if first["loc"] else message) from None


def _local_api() -> "LocalApi":
    """The server of this machine, as `drumline up` left word of it, else at the address of the settings."""
    import json

    from drumline_server.app.local import LocalApi, read_admin_token

    settings = _settings()
    secret = read_admin_token(settings.data_dir)
    if secret is None:
        raise click.ClickException(
            f"{settings.data_dir} holds no admin token: start the server first, or set DRUMLINE_DATA_DIR to its "
            "directory."
        )
    try:
        url = str(json.loads((settings.data_dir / "client.json").read_text())["url"])
    except (OSError, ValueError, KeyError):
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        url = f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{settings.port}"
    return LocalApi(url, secret)
