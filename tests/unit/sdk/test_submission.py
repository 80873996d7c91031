"""Options of a submission, from flags to the keywords of the client."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from drumline import Client
from drumline.cli.plan import plan
from drumline.cli.submission import arguments, submission_options
from drumline.cli.submit import submit
from drumline.cli.sweep import sweep
from drumline.errors import ParameterError

NOBODY = "http://127.0.0.1:1"
SPREADS = "Input should be 'pack', 'balance' or 'one_host'"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "digits.py"
    path.write_text("def main(run):\n    return {}\n")
    return path


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(NOBODY, "drm_pat_test") as opened:
        yield opened


def _spread_of(*flags: str) -> object:
    @click.command()
    @submission_options
    def command(**wanted: object) -> object:
        return arguments("digits.py", wanted)["spread"]

    return CliRunner().invoke(command, flags, standalone_mode=False).return_value


@pytest.mark.parametrize(
    ("flags", "spread"),
    [((), "pack"), (("--spread", "balance"), "balance"), (("--spread", "one_host"), "one_host")],
)
def test_spread_reaches_the_client_as_it_was_asked_for(flags: tuple[str, ...], spread: str) -> None:
    assert _spread_of(*flags) == spread


@pytest.mark.parametrize("command", [submit, plan, sweep])
def test_commands_that_take_a_submission_take_its_spread(command: click.Command) -> None:
    assert "spread" in {parameter.name for parameter in command.params}


@pytest.mark.parametrize(("given", "nearest"), [("one-host", "; did you mean 'one_host'?"), ("everywhere", "")])
def test_unknown_spread_is_refused_with_the_choices_before_anything_is_sent(
    client: Client, program: Path, given: str, nearest: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        client.submit(program, spread=given)  # type: ignore[arg-type]  # the mistake that is tested
    assert str(caught.value) == f"spread={given!r}: {SPREADS}{nearest}"
    assert caught.value.name == "spread"
