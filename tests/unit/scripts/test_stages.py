"""What `make test` counts, and that a count which drops without a word fails it."""

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest
from scripts import stages

SCRIPTS = Path(stages.__file__).parent
REPORT = """<testsuites><testsuite name="pytest">
<testcase name="a"><properties><property name="seeds" value="500"/></properties></testcase>
<testcase name="b"><properties><property name="examples" value="20"/></properties></testcase>
<testcase name="c"><skipped message="no"/></testcase>
<testcase name="d"><properties><property name="mutants" value="1"/></properties><failure message="no"/></testcase>
</testsuite></testsuites>"""


def shortfalls(seen: Mapping[str, int], *replaced: Mapping[str, object]) -> list[str]:
    result = stages.Result("unit", passed=True, wall_s=1.0, processor_s=1.0, counts=dict(seen))
    return stages.shortfalls([result], {"least": {"unit": {"tests": 100, "seeds": 5}}, "replaced": list(replaced)})


def test_only_what_passed_counts(tmp_path: Path) -> None:
    (tmp_path / "1.xml").write_text(REPORT)
    (tmp_path / "2.xml").write_text(REPORT)
    assert stages.count(tmp_path) == {"tests": 4, "seeds": 1000, "examples": 40}


def test_a_count_may_grow_and_may_not_drop() -> None:
    assert shortfalls({"tests": 100, "seeds": 6}) == []
    (said,) = shortfalls({"tests": 97, "seeds": 5})
    assert "unit proves less: 97 tests, 100 before" in said
    assert "what took the place of 3" in said


def test_a_stage_that_reports_nothing_proves_less() -> None:
    assert len(shortfalls({})) == 2


def test_a_line_that_says_what_took_the_place_of_tests_allows_as_many_to_go() -> None:
    line = {"stage": "unit", "count": "tests", "less": 3, "why": "one test of all three"}
    assert shortfalls({"tests": 97, "seeds": 5}, line) == []
    assert len(shortfalls({"tests": 96, "seeds": 5}, line)) == 1
    assert len(shortfalls({"tests": 97, "seeds": 5}, {**line, "stage": "e2e"})) == 1


def test_every_line_of_the_proof_names_a_stage_a_count_and_a_reason() -> None:
    proof = json.loads(stages.PROOF.read_text())
    known = {stage for lane in stages.LANES.values() for stage in lane}
    assert set(proof["least"]) <= known
    for line in proof["replaced"]:
        assert line["stage"] in known
        assert line["count"] in proof["least"][line["stage"]]
        assert line["less"] >= 0  # 0: as many, each of which does less
        assert len(line["why"]) > 20


def test_a_copy_that_is_kept_has_the_newest_line_of_each_stage(tmp_path: Path) -> None:
    copy = tmp_path / "long.json"
    old = [stages.Result(name, passed=True, wall_s=1.0, processor_s=1.0, commit="a") for name in ("sim", "fuzz")]
    new = [stages.Result("fuzz", passed=False, wall_s=2.0, processor_s=2.0, commit="b")]
    copy.write_text(stages.told(old, 1.0))

    assert [*stages.kept(copy, new), *new] == [old[0], new[0]]
    assert stages.kept(tmp_path / "none.json", new) == []


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With stages of every kind."""
    (tmp_path / "Makefile").write_text(
        "good:\n\t@echo $(WORD)\nbad:\n\t@echo so it is; exit 3\n"
        "busy:\n\t@python3 -c 'sum(range(10**7))'\nendless:\n\t@echo $$$$ > pid; sleep 1000\n"
    )
    monkeypatch.setattr(stages, "ROOT", tmp_path)
    monkeypatch.setattr(stages, "REPORTS", tmp_path / "reports")
    (tmp_path / "reports").mkdir()
    return tmp_path


def test_a_stage_keeps_its_exit_status_its_log_and_its_processor_time(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lanes = {"computes": ("good", "busy"), "waits": ("bad",)}
    results = {result.stage: result for result in stages.Lanes(lanes, {"good": ("WORD=heard",)}).run()}

    assert {stage for stage, result in results.items() if result.passed} == {"good", "busy"}
    assert (checkout / "reports" / "good.log").read_text() == "heard\n"
    assert results["busy"].processor_s > 0.0
    said = capsys.readouterr().out
    assert "so it is" in said
    assert all(f"s  {stage:14} begins" in said for stage in results)


def test_a_lane_that_is_done_takes_a_stage_that_waits_in_another(checkout: Path) -> None:
    with (checkout / "Makefile").open("a") as makefile:
        makefile.write("needs:\n\t@for i in $$(seq 600); do test -e made && exit 0; sleep 0.05; done; exit 1\n")
        makefile.write("makes:\n\t@touch made\n")

    results = stages.Lanes({"computes": ("needs", "makes"), "waits": ("good",)}, {}).run()

    assert sorted((result.stage, result.passed) for result in results) == [
        ("good", True),
        ("makes", True),
        ("needs", True),
    ]


@pytest.mark.parametrize("ignored", [False, True], ids=["", "where signals are ignored"])
def test_an_interrupted_run_leaves_no_stage_behind(checkout: Path, ignored: bool) -> None:
    program = (
        "import pathlib, sys; from scripts import stages; stages.ROOT = pathlib.Path(sys.argv[1]); "
        "stages.REPORTS = stages.ROOT / 'reports'; stages.end_on_signals(); "
        "stages.Lanes({'waits': ('endless', 'good')}, {}).run()"
    )
    shell = "trap '' INT; exec \"$@\"" if ignored else 'exec "$@"'
    command = ["sh", "-c", shell, "-", sys.executable, "-c", program, str(checkout)]
    with subprocess.Popen(command, cwd=SCRIPTS.parent) as process:
        try:
            pid = checkout / "pid"
            while not (pid.exists() and pid.read_text().strip()):
                assert process.poll() is None
                time.sleep(0.01)
            endless = psutil.Process(int(pid.read_text()))
            process.send_signal(signal.SIGINT)
            assert process.wait(120) != 0
        finally:
            process.kill()
    with contextlib.suppress(psutil.NoSuchProcess):
        endless.wait(120)
    assert not (checkout / "reports" / "good.log").exists()
