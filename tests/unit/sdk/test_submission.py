"""Options of a submission, from flags to the keywords of the client."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from drumline import Client
from drumline.cli.batches import sweep
from drumline.cli.submit import arguments, plan, submission_options, submit
from drumline.contracts.spec import MirroredSpec, RecordSpec, Retries
from drumline.errors import OptionError, ParameterError, ServerUnreachableError
from drumline.program import PackedProgram

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


def _told(keyword: str, *flags: str) -> object:
    """What the client would be told; raises what the command raised."""

    @click.command()
    @submission_options
    def command(**wanted: object) -> object:
        return arguments(PackedProgram(Path("digits.py"), b"", ()), wanted)[keyword]

    return command.main(flags, standalone_mode=False)


@pytest.mark.parametrize(
    ("flags", "spread"),
    [((), "pack"), (("--spread", "balance"), "balance"), (("--spread", "one_host"), "one_host")],
)
def test_spread_reaches_the_client_as_it_was_asked_for(flags: tuple[str, ...], spread: str) -> None:
    assert _told("spread", *flags) == spread


@pytest.mark.parametrize(
    ("flags", "retries"),
    [
        ((), Retries()),
        (("--infrastructure-retries", "0"), Retries(infrastructure=0)),
        (("--retries", "2", "--infrastructure-retries", "7"), Retries(user=2, infrastructure=7)),
    ],
)
def test_retries_reach_the_client_as_they_were_asked_for(flags: tuple[str, ...], retries: Retries) -> None:
    assert _told("retries", *flags) == retries


@pytest.mark.parametrize(
    ("flags", "record"),
    [
        ((), RecordSpec()),
        (("--record", "reductions_every=1"), RecordSpec(reductions_every=1)),
    ],
)
def test_what_to_record_reaches_the_client_as_it_was_asked_for(flags: tuple[str, ...], record: RecordSpec) -> None:
    assert _told("record", *flags) == record


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        (submit, ["-p", "epochs=3"]),
        (submit, ["--plan", "-p", "epochs=3"]),
        (plan, ["-p", "epochs=3"]),
        (sweep, ["-p", "epochs=3", "--sweep", "rate=1,2"]),
    ],
)
def test_a_program_is_read_once_whatever_is_read_by_its_types(
    program: Path, command: click.Command, flags: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program.write_text("def main(run, *, epochs: int, rate: float = 0.1):\n    return {}\n")
    monkeypatch.setenv("DRUMLINE_TOKEN", "drm_pat_test")
    opened: list[object] = []
    sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "open" else None)

    with pytest.raises(ServerUnreachableError):
        command.main([str(program), "--url", NOBODY, *flags], standalone_mode=False)

    assert [str(path) for path in opened].count(str(program)) == 1


@pytest.mark.parametrize("command", [submit, plan, sweep])
def test_commands_that_take_a_submission_take_all_its_options(command: click.Command) -> None:
    names = {parameter.name for parameter in command.params}

    assert names >= {"spread", "retries", "infrastructure_retries", "record"}


@pytest.mark.parametrize(
    ("flags", "said", "name"),
    [
        (("--retries", "-1"), "retries.user=-1: Input should be greater than or equal to 0", "retries.user"),
        (
            ("--infrastructure-retries", "101"),
            "retries.infrastructure=101: Input should be less than or equal to 100",
            "retries.infrastructure",
        ),
        (
            ("--record", "reductions_every=0"),
            "record.reductions_every='0': Input should be greater than or equal to 1",
            "record.reductions_every",
        ),
        (
            ("--record", "reductions_every=often"),
            "record.reductions_every='often': Input should be a valid integer, unable to parse string as an integer",
            "record.reductions_every",
        ),
        (
            ("--record", "profile_every=0"),
            "record.profile_every='0': Input should be greater than or equal to 1",
            "record.profile_every",
        ),
        (
            ("--record", "reduction_every=5"),
            "record has no setting 'reduction_every'; did you mean 'reductions_every'?",
            "reduction_every",
        ),
        (
            ("--record", "everything=5"),
            "record has no setting 'everything'; choose from reductions_every, large_reductions_every, profile_every, "
            "divergence_every, on_divergence",
            "everything",
        ),
    ],
)
def test_wrong_retries_and_records_are_refused_by_name_with_what_is_allowed(
    flags: tuple[str, ...], said: str, name: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        _told("record", *flags)
    assert (str(caught.value), caught.value.name) == (said, name)


@pytest.mark.parametrize(("given", "nearest"), [("one-host", "; did you mean 'one_host'?"), ("everywhere", "")])
def test_unknown_spread_is_refused_with_the_choices_before_anything_is_sent(
    client: Client, program: Path, given: str, nearest: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        client.submit(program, spread=given)  # type: ignore[arg-type]  # the mistake that is tested
    assert str(caught.value) == f"spread={given!r}: {SPREADS}{nearest}"
    assert caught.value.name == "spread"


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"on": "k80:8"}, r"^on: 'k80:8': there is no TPU 'k80'.*GPUs are a100, h100, h200, b200"),
        ({"batch_parameter": "batch"}, "^batch_parameter looks for the largest batch on a slice: name one with `on`"),
    ],
)
def test_terms_of_a_plan_that_do_not_go_together_are_said_in_words(
    client: Client, program: Path, terms: dict[str, str], said: str
) -> None:
    with pytest.raises(OptionError, match=said):
        client.plan(program, on=terms.get("on"), batch_parameter=terms.get("batch_parameter"))


def test_calls_that_the_program_never_makes_are_not_to_be_traced(client: Client, program: Path) -> None:
    with pytest.raises(OptionError, match=r"record.profile_every=5 traces calls of strategy.run.*leave one of the two"):
        client.submit(program, strategy=MirroredSpec(collectives="jax"), record=RecordSpec(profile_every=5))
