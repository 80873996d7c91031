"""Text for terminals: nothing that others wrote may drive them."""

import io
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.cli.options import age
from drumline.cli.recorded import _cell as table_cell
from drumline.progress import LineProgress, open_progress
from drumline.wording import duration, plain, share_text, size_text, spent_text, table
from drumline_server.telemetry.export import inert_cell


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x", "]0;titlex"),
        ("50%\r100%\r\n", "50%\n100%\n"),
        ("a\tb\n", "a\tb\n"),
        ("a\x9b2Jb", "a2Jb"),
        ("evil\u202etxt", "eviltxt"),
        ("naïve ✓", "naïve ✓"),
    ],
)
def test_escape_sequences_are_taken_out_and_text_is_kept(text: str, expected: str) -> None:
    assert plain(text) == expected


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    assert not any(ord(character) < 32 and character not in "\t\n" for character in plain(text))
    assert "\x1b" not in plain(text)
    assert "\x9b" not in plain(text)


def test_table_is_aligned_and_no_cell_breaks_its_row() -> None:
    assert table(("A", "LONG"), [("x\ny", "1"), ("longer", "2")]) == "A       LONG\nx y     1\nlonger  2"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.44, "0.4 s"),
        (9.96, "10 s"),
        (59.5, "1 m 00 s"),
        (185, "3 m 05 s"),
        (7_620, "2 h 07 m"),
        (273_600, "3 d 04 h"),
    ],
)
def test_durations_are_written_as_the_dashboard_does(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(1, "now"), (59, "59 s"), (60, "1 min"), (7_300, "2 h"), (172_800, "2 d"), (200_000, "2 d")]
)
def test_ages_are_in_one_unit_as_the_dashboard_has_them(seconds: float, shown: str) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert age(now - timedelta(seconds=seconds), now) == shown


def test_age_of_what_never_was_is_a_dash() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert age(None) == "-"
    assert age(now - timedelta(seconds=30), now) == "30 s"


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"), (512, "512 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (2560, "2.5 KiB"),
        (1280, "1.3 KiB"), (38_400, "37.5 KiB"), (2**20 - 1, "1024 KiB"), (25_232_932_864, "23.5 GiB"),
        (137_438_953_472, "128 GiB"), (150_000_000_000, "140 GiB"), (2**50, "1.0 PiB"), (2**62, "4096 PiB"),
    ],
)  # fmt: skip
def test_sizes_have_binary_units_and_the_digits_of_the_dashboard(count: int, shown: str) -> None:
    assert size_text(count) == shown


def test_without_a_terminal_a_line_comes_each_tenth_of_the_way_and_the_last_is_never_lost() -> None:
    stream = io.StringIO()
    progress = LineProgress(stream)
    for step in range(1, 96):
        progress.update(step, 100)
    progress.close()
    steps = [int(line.split()[1].split("/")[0]) for line in stream.getvalue().splitlines()]
    assert steps == [1, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95]


def test_progress_line_tells_rate_and_scalars() -> None:
    stream = io.StringIO()
    LineProgress(stream).update(3, None, 12.345, {"loss": 0.123456})
    assert stream.getvalue() == "step 3  12.3 steps/s  loss 0.1235\n"


def test_last_values_of_a_step_already_shown_are_not_lost() -> None:
    stream = io.StringIO()
    progress = LineProgress(stream)
    progress.update(10, 10, None, {"loss": 2.0})
    progress.update(10, 10, None, {"loss": 1.0})
    progress.update(10, 10, None, {"loss": 1.0})
    progress.close()
    assert stream.getvalue().splitlines() == ["step 10/10  loss 2", "step 10/10  loss 1"]


class _Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_a_bar_is_drawn_and_the_last_step_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    stream = _Terminal()
    progress = open_progress(stream)
    progress.update(3, 10, 2.0, {"[red]loss": 0.5})
    progress.line("[bold]RUNNING[/bold]")
    progress.close()
    assert "\x1b[" in stream.getvalue()
    assert "[bold]RUNNING[/bold]" in stream.getvalue()
    assert stream.getvalue().rstrip().endswith("step 3/10  2 steps/s  [red]loss 0.5")


def test_in_a_ci_job_lines_are_printed_even_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    assert isinstance(open_progress(_Terminal()), LineProgress)


def test_a_cell_that_a_spreadsheet_would_run_is_text_in_every_csv() -> None:
    """The list that OWASP gives, wide forms too; the dashboard's own is in `csv.test.ts`."""
    for begin in "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20":
        assert inert_cell(f"{begin}1+1") == table_cell(f"{begin}1+1") == f"'{begin}1+1", begin
    for plain_one in ("", "loss", "a=1", "1e-5"):
        assert inert_cell(plain_one) == table_cell(plain_one) == plain_one


def test_what_is_there_but_tiny_is_not_shown_as_nothing() -> None:
    """As the dashboard writes the same ledger: `formatSpent` and `formatShare`."""
    assert [spent_text(seconds) for seconds in (0, 0.03, 0.06, 90)] == ["0.0 s", "< 0.1 s", "0.1 s", "1 m 30 s"]
    assert [share_text(part, 10) for part in (0, 0.001, 0.04, 5)] == ["0.0 %", "< 0.1 %", "0.4 %", "50.0 %"]
