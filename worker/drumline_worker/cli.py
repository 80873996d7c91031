"""Commands of the worker: `drumline worker run`, `python -m drumline_worker run`."""

import asyncio
import logging
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from drumline._log_lines import set_up_logging
from drumline._preload import without_collection
from drumline_worker.settings import WorkerSettings

for _package in ("jax", "numpy", "grain", "orbax", "celery"):
    if find_spec(_package) is None:
        raise ModuleNotFoundError(f"No module named {_package!r}", name=_package)


@click.group()
def worker() -> None:
    """Run the worker of this device host."""


@worker.command()
@click.option("--server", help="Address of the server, such as http://127.0.0.1:7700.")
@click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False), help="Where the worker keeps its files.")
@click.option("--name", help="Name of this host; default: its host name.")
@click.option("--address", help="Where other hosts reach this one; default: the address it reaches the server from.")
@click.option("--cpu-devices", type=int, help="Simulated CPU devices where there is no accelerator; default 8.")
@click.option("--simulate", help="Slice that CPU devices of this host stand for, such as v4:2x2x4 or gpu:8.")
@click.option("--simulated-host", type=int, help="Which host of that slice this one is, from 0; default 0.")
@click.option("--slice-name", help="Name of that slice, alike on all of its hosts; default: what is simulated.")
@click.option(
    "--checkpoint-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Volume for checkpoints that other hosts mount too: runs over several need it. Default: a directory here.",
)
@click.option("--enroll-fd", type=int, help="Descriptor from which to read a single-use enrolment token.")
@click.option("--enroll-token-file", type=click.Path(path_type=Path, exists=True), help="File with such a token.")
@click.option("--parent-fd", type=int, help="End of a pipe; when it closes, the worker stops everything at once.")
@click.option("--report-fd", type=int, hidden=True, help="Gets lines of JSON: how far the worker is, what of it fails.")
def run(
    enroll_fd: int | None,
    enroll_token_file: Path | None,
    parent_fd: int | None,
    report_fd: int | None,
    **given: Any,
) -> None:
    """Run until SIGTERM. The first start needs an enrolment token; later ones use worker.json in the data directory."""
    settings = _settings({name: value for name, value in given.items() if value is not None})
    set_up_logging(settings.log_format, "%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    with without_collection():
        from drumline_worker.agent.agent import Agent, AgentError
        from drumline_worker.agent.identity import Enrolment
        from drumline_worker.agent.reports import Reports

    fd = os.open(enroll_token_file, os.O_RDONLY | os.O_CLOEXEC) if enroll_token_file is not None else enroll_fd
    try:
        enrolment = Enrolment(fd) if fd is not None else None
        asyncio.run(Agent(settings, enrolment, parent_fd, Reports(report_fd)).run())
    except AgentError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)  # not 2: the command line was right


def _settings(given: dict[str, Any]) -> WorkerSettings:
    try:
        return WorkerSettings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        raise click.BadParameter(first["msg"], param_hint=str(first["loc"][0])) from None


@worker.group()
def compilers() -> None:
    """Compilers of chips that this host need not have, with which `drumline plan --on` plans."""


@compilers.command()
@click.argument("chip", type=click.Choice(["tpu", "gpu"]))
@click.option(
    "--from",
    "wheels",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    help="A wheel here: libtpu's, or for GPUs both of JAX's CUDA plugin.",
)
@click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False), help="Where the worker keeps its files.")
@click.option("--accept-licence", is_flag=True, help="Agree to the licence that is shown without being asked.")
def add(chip: str, wheels: tuple[Path, ...], data_dir: Path | None, accept_licence: bool) -> None:
    """Add the compiler of CHIP to the worker's data directory, once its licence is agreed to.

    Without --from uv fetches pinned wheels and checks their hashes: for TPUs libtpu, 137 MB, Google's, under terms of
    its own; for GPUs JAX's CUDA plugin, 132 MB, which needs no GPU and no driver. Drumline depends on neither. Workers
    that run need no restart.
    """
    from drumline_worker.agent.compilers import CompilerError, Compilers

    def agree(licence: str) -> bool:
        click.echo(f"{licence}\n")
        return accept_licence or click.confirm("Do you agree to these terms?")

    try:
        compilers = Compilers(_data_dir(data_dir) / "compilers")
        if chip == "tpu" and len(wheels) > 1:
            raise click.UsageError("the compiler of TPUs is one wheel: name --from once")
        made = compilers.add_gpu(wheels, agree) if chip == "gpu" else compilers.add_tpu(next(iter(wheels), None), agree)
    except CompilerError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)
    click.echo(f"added {made.name} {made.version} for {chip}; sha256 of its library {made.sha256}")


@compilers.command(name="list")
@click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False), help="Where the worker keeps its files.")
def list_compilers(data_dir: Path | None) -> None:
    """List the compilers that were added."""
    from drumline_worker.agent.compilers import ADD_GPU, ADD_TPU, Compilers

    compilers = Compilers(_data_dir(data_dir) / "compilers")
    found = {name: made for name in ("tpu", "gpu") if (made := compilers.find(name)) is not None}
    for name, made in found.items():
        click.echo(f"{name}: {made.name} {made.version}")
    if not found:
        click.echo(f"no compiler was added; add one: {ADD_TPU}, or: {ADD_GPU}")


def _data_dir(given: Path | None) -> Path:
    return _settings({} if given is None else {"data_dir": given}).data_dir
