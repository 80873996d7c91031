"""`make house`: what counts of a recording, and what of the code's shape."""

import json
import signal
import subprocess
import textwrap
from pathlib import Path

from scripts import pythons
from scripts.house.figures import Figures
from scripts.house.lifecycle import compare
from scripts.house.recordings import Function, Recording, read, shared, without
from scripts.house.rooms import room_of
from scripts.house.shape import Code, circles, unused

RECORDER = Path(__file__).resolve().parents[3] / "scripts" / "house" / "recorder.py"
WORK = """
    import asyncio
    import os
    import signal


    def outer():
        inner()
        child = os.fork()
        if child == 0:
            forked()
            os._exit(0)
        os.waitpid(child, 0)
        sorted([2, 1], key=lambda _: 0)
        asyncio.run(later())
        os.kill(os.getpid(), signal.SIGKILL)


    def inner():
        pass


    def forked():
        pass


    async def later():
        await asyncio.sleep(0)
        inner()
"""


def write(root: Path, sources: dict[str, str]) -> Path:
    """A checkout with these files."""
    for folder in ("sdk", "backend", "worker", "tests", "examples", "migrations", "docs"):
        (root / folder).mkdir()
    (root / "pyproject.toml").touch()
    for name, source in sources.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source).lstrip())
    return root


def test_a_recording_is_read_up_to_where_its_process_was_killed(tmp_path: Path) -> None:
    codes = f"c 1 3 outer\t{tmp_path}/sdk/a.py\nc 2 9 inner\t{tmp_path}/sdk/b.py\n"
    lines = f"r 1\n{codes}p 1 0 1 50\np 2 1 2 60\nr 2\np 1 0 2 70\np 2 1"
    (tmp_path / "7-1.paths").write_bytes(lines.encode() + b"\0" * 1000)

    outer, inner = Function("sdk/a.py", 3, "outer"), Function("sdk/b.py", 9, "inner")
    found = read(tmp_path, tmp_path)

    assert found[1].paths == {(outer,): 50, (outer, inner): 60}
    assert found[2].paths == {(inner,): 70}


def test_a_path_counts_unless_it_is_background_or_in_few_recordings() -> None:
    loop, work, rare = Function("a", 1, "loop"), Function("a", 2, "work"), Function("a", 3, "rare")
    several = [
        Recording({(loop,): 100, (loop, work): 130}),
        Recording({(loop,): 200, (loop, work): 210, (loop, rare): 220}),
        Recording({(loop,): 300}),
    ]

    idle = [Recording({(loop,): 9})]
    assert without(several, idle) == {(loop, work): 30}
    assert shared(several, idle) == {loop}
    assert shared(several, [*idle, Recording({(loop, work): 9, (loop, rare): 12})]) == {loop, work}


def test_path_that_the_fullest_recording_lacks_stands_behind_what_came_before_it() -> None:
    """Its own recording may have been twice as quick: times of two are not to be compared."""
    ask, work, answer, late = ((Function("a", line, "f"),) for line in range(4))
    slow = Recording({ask: 0, work: 5_000, answer: 9_000, work + work: 9_500})
    quick = [
        Recording({ask: 0, work: 1_000, answer: 3_000, late: 4_000}),
        Recording({ask: 0, answer: 3_000, late: 4_000, work + work: 4_500}),
    ]

    found = without([slow, *quick], [])

    assert found == {ask: 0, work: 5_000, answer: 9_000, late: 9_001, work + work: 9_500}


def test_crossings_go_back_where_the_way_returns_to_a_room(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "backend/server/high/a.py": "from server.low import b\ndef start(): b.run(end)\ndef end(): pass\n",
            "backend/server/low/b.py": """
                def run(work): work()
                def call():
                    from server.high import a
                    a.end()
            """,
        },
    )
    start, end = Function("backend/server/high/a.py", 2, "start"), Function("backend/server/high/a.py", 3, "end")
    run, call = Function("backend/server/low/b.py", 1, "run"), Function("backend/server/low/b.py", 2, "call")

    found = Figures(Code(root)).of({(start,): 0, (start, run): 1, (start, run, call): 2, (start, run, call, end): 3})

    assert (found["files"], found["functions"], found["lines"]) == (2, 4, 1 + 1 + 1 + 3)
    assert [each.rpartition(":")[2] for each in found["entered"]] == ["start", "run", "call", "end"]
    assert (found["crossings"], found["crossings_back"]) == (2, 1)
    assert found["rooms_crossed"] == {"server.high -> server.low": 1, "server.low -> server.high": 1}


def test_crossing_below_a_function_that_was_handed_over_goes_back_by_the_hand_over(tmp_path: Path) -> None:
    """A database that runs `change` was given it: `change` calls down like everybody, and no import leads up."""
    root = write(
        tmp_path,
        {
            "backend/server/high/a.py": """
                from server.low import b
                def start(): b.run(change)
                def change(): b.insert()
            """,
            "backend/server/low/b.py": "def run(work): work()\ndef insert(): pass\n",
        },
    )
    start, change = Function("backend/server/high/a.py", 2, "start"), Function("backend/server/high/a.py", 3, "change")
    run, insert = Function("backend/server/low/b.py", 1, "run"), Function("backend/server/low/b.py", 2, "insert")

    found = Figures(Code(root)).of({(run,): 0, (run, change): 1, (run, change, insert): 2})
    direct = Figures(Code(root)).of({(start, run, change): 0})

    assert (found["crossings"], found["crossings_back"], found["crossings_back_handed_over"]) == (2, 0, 1)
    assert (direct["crossings"], direct["crossings_back"], direct["crossings_back_handed_over"]) == (2, 0, 1)


def test_circles_tell_imports_at_start_from_late_ones_and_those_for_types(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "sdk/p/a.py": "from p import b\n",
            "sdk/p/b.py": "def late():\n    from p import c\n",
            "sdk/p/c.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p import a\n",
            "sdk/p/d.py": "def late():\n    from p import e\n",
            "sdk/p/e.py": "import p.d\n",
        },
    )

    found = circles(Code(root))

    assert found["at start"]["files"] == []
    assert found["late too"]["files"] == [["sdk/p/d.py", "sdk/p/e.py"]]
    assert found["types too"]["files"] == [["sdk/p/a.py", "sdk/p/b.py", "sdk/p/c.py"], ["sdk/p/d.py", "sdk/p/e.py"]]


def test_an_export_that_no_other_file_names_is_unused(tmp_path: Path) -> None:
    root = write(tmp_path, {"sdk/p/a.py": "USED = 1\nALONE = 2\n_OWN = 3\n", "sdk/p/b.py": "from p.a import USED\n"})

    assert unused(Code(root)) == ["sdk/p/a.py:ALONE"]


def test_a_room_is_the_package_below_its_distribution() -> None:
    rooms = {
        "backend/server/main.py": "server.main",
        "backend/server/__init__.py": "server",
        "backend/server/runs/views.py": "server.runs",
        "backend/server/app/embedded/up.py": "server.app",
        "sdk/drumline/distribute/values/mirrored.py": "drumline.distribute.values",
        "frontend/src/features/run/logs/search.ts": "frontend/features/run",
        "frontend/src/lib/stream/line.ts": "frontend/lib",
    }

    assert {file: room_of(Path(file)) for file in rooms} == rooms


def test_steps_of_the_lifecycle_page_are_entered_in_their_order() -> None:
    entered = [
        "sdk/d/client.py:Client.submit",
        "backend/s/submit.py:submit_run",
        "backend/s/loops.py:start.<locals>.look",
    ]
    page = """
        # Lifecycle
        <!-- trace: submit -->
        1. The client asks (`Client.submit`).
        2. The server stores it,
           by `submit.submit_run`, which `Client` knows nothing of.
        3. The loop looks: `loops.start.look()`.

        ## What no trace records
        1. Something else: `loops.forget`.
    """

    assert compare(textwrap.dedent(page), {"submit": {"entered": entered}}) == []
    assert compare(textwrap.dedent(page), {"submit": {"entered": entered[::-1]}}) == [
        "submit, step 2: submit.submit_run is entered before the step above",
        "submit, step 3: loops.start.look is entered before the step above",
    ]
    assert compare(textwrap.dedent(page), {"submit": {"entered": entered[:2]}}) == [
        "submit, step 3: loops.start.look is not on the way"
    ]
    for others in (entered[1:], entered[1:] + entered[:1]):
        assert compare(textwrap.dedent(page), {"submit": {"entered": others, "shared": entered[:1]}}) == []
    assert compare(textwrap.dedent(page), {"cancel": {"entered": entered}}) == [
        "submit: there is no such trace, only cancel"
    ]


def test_on_every_python_that_can_a_killed_process_and_its_fork_leave_the_paths_that_they_went(tmp_path: Path) -> None:
    for minor, python in pythons.choose(pythons.candidates("uv")).found.items():
        if minor >= (3, 12):
            recording = _recorded(python.path, tmp_path / python.name)

            assert {tuple(each.name for each in path) for path in recording.paths} == {
                ("outer",),
                ("outer", "inner"),
                ("outer", "forked"),
                ("outer", "later"),
                ("outer", "later", "inner"),
            }
            assert recording.processes == 2


def _recorded(python: str, folder: Path) -> Recording:
    recordings, root, settings = folder / "recordings", folder / "checkout", folder / "house.json"
    recordings.mkdir(parents=True)
    root.mkdir()
    (recordings / "control").write_bytes(b"\1")
    settings.write_text(json.dumps({"folder": str(recordings), "root": str(root)}))
    (root / "work.py").write_text(textwrap.dedent(WORK).lstrip())
    code = f"import recorder; recorder.start({str(settings)!r}); import work; work.outer()"
    killed = subprocess.run([python, "-c", code], env={"PYTHONPATH": f"{RECORDER.parent}:{root}"}, check=False)
    assert killed.returncode == -signal.SIGKILL
    return read(recordings, root)[1]
