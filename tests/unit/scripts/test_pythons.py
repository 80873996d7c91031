"""`make test` on every Python: what is found, what is not, and that each one found is tested."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "pythons.py"
UV = """#!/bin/sh
# Makes an environment whose Python notes down its tests, and fails them where the file `fails-3.N` says so.
[ "$1" = venv ] || exit 0
PATH=/usr/bin:/bin
for folder; do :; done
mkdir -p "$folder/bin"
cat > "$folder/bin/python" <<END
#!/bin/sh
echo "$(basename "$folder") \\$*" >> "{notes}"
[ ! -e "{notes}-$(basename "$folder")" ]
END
chmod +x "$folder/bin/python"
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine with the Pythons that a test puts there, and nothing else."""

    root: Path

    def put(self, place: str, *version: int, kind: str = "cpython", own: str = "") -> Path:
        """Something that answers as that Python."""
        said = json.dumps({"version": version, "path": own or str(self.root / place), "kind": kind})
        return self.write(place, f"echo '{said}'")

    def write(self, place: str, script: str) -> Path:
        """Something that can be run."""
        path = self.root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script if script.startswith("#!") else f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def fail_on(self, minor: str) -> None:
        """Tests on this Python fail."""
        (self.root / f"notes-.venv-{minor}").touch()

    def test(self, *options: str) -> subprocess.CompletedProcess[str]:
        """What `make test` runs."""
        self.write("tools/uv", UV.format(notes=self.root / "notes"))
        path = os.pathsep.join([str(self.root / "bin"), str(self.root / "other"), "/gone", ""])
        environment = {"PATH": path, "PYENV_ROOT": str(self.root / "pyenv"), "HOME": str(self.root)}
        command = [sys.executable, str(SCRIPT), "--uv", str(self.root / "tools/uv"), "--folder", str(self.root)]
        return subprocess.run(
            [*command, *options, "--", "-q", "tests/slim"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def tested(self) -> list[str]:
        """The environments in which tests ran."""
        notes = self.root / "notes"
        return [line.split()[0] for line in notes.read_text().splitlines()] if notes.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Without any Python."""
    return Machine(tmp_path)


def found(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Version and path of what it says it found."""
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("found ")]
    return {version: path for _, version, path in lines}


def test_every_python_that_is_found_is_tested(machine: Machine) -> None:
    on_path = machine.put("bin/python3.11", 3, 11, 7)
    of_pyenv = machine.put("pyenv/versions/3.13.0/bin/python", 3, 13, 0)

    done = machine.test()

    assert done.returncode == 0, done.stderr
    assert found(done) == {"3.11.7": str(on_path), "3.13.0": str(of_pyenv)}
    assert "not found  3.12\nnot found  3.14\n" in done.stdout
    assert machine.tested == [".venv-3.11", ".venv-3.13"]
    assert "Tested on 3.11.7, 3.13.0." in done.stdout


def test_the_version_on_which_all_tests_run_is_left_out_unless_named(machine: Machine) -> None:
    own, other = sys.version_info[:2], (3, 11 + (sys.version_info[1] == 11))
    machine.put("bin/python3", *own, 4)
    machine.put("other/python3", *other, 1)
    names = [".".join(map(str, minor)) for minor in (own, other)]

    assert "Tested on " + names[1] in machine.test("--others").stdout
    assert machine.test("--others", "--only", names[0]).returncode == 0
    assert machine.tested == [f".venv-{names[1]}", f".venv-{names[0]}"]


def test_a_shim_that_cannot_be_started_is_not_found(machine: Machine) -> None:
    machine.put("bin/python3", 3, 11, 7)
    shim = machine.write("bin/python3.12", "echo 'pyenv: python3.12: command not found' >&2\nexit 127")

    done = machine.test()

    assert done.returncode == 0, done.stderr
    assert list(found(done)) == ["3.11.7"]
    assert f"passed over {shim}: does not run: exit code 127" in done.stdout
    assert "not found  3.12" in done.stdout


def test_a_shim_that_starts_is_known_by_the_python_behind_it(machine: Machine) -> None:
    real = machine.put("pyenv/versions/3.12.1/bin/python", 3, 12, 1)
    machine.put("bin/python3.12", 3, 12, 1, own=str(real))

    assert found(machine.test()) == {"3.12.1": str(real)}


def test_of_two_of_one_version_the_newest_is_tested_once(machine: Machine) -> None:
    machine.put("bin/python3.12", 3, 12, 1)
    newer = machine.put("other/python3.12", 3, 12, 10)
    (machine.root / "bin/python3").symlink_to(newer)

    done = machine.test()

    assert found(done) == {"3.12.10": str(newer)}
    assert machine.tested == [".venv-3.12"]


@pytest.mark.parametrize("version", [(3, 10, 13), (3, 15, 2), (2, 7, 18)])
def test_a_version_that_is_not_supported_is_passed_over(machine: Machine, version: tuple[int, int, int]) -> None:
    machine.put("bin/python", *version)
    machine.put("bin/python3", 3, 14, 0)

    done = machine.test()

    assert list(found(done)) == ["3.14.0"]
    assert f"Python {'.'.join(map(str, version))} is not supported" in done.stdout


@pytest.mark.parametrize("kind", ["pypy", "cpythont"])
def test_only_cpython_with_its_lock_counts(machine: Machine, kind: str) -> None:
    machine.put("bin/python3.13", 3, 13, 1, kind=kind)

    done = machine.test()

    assert (done.returncode, found(done)) == (2, {})


@pytest.mark.parametrize("script", ["echo hello", "echo '{}'", "echo '[]'", "kill -9 $$", "#!/no/such/interpreter\n"])
def test_what_is_no_python_is_passed_over(machine: Machine, script: str) -> None:
    machine.write("bin/python3.12", script)
    machine.put("bin/python3.11", 3, 11, 7)

    done = machine.test()

    assert (done.returncode, list(found(done))) == (0, ["3.11.7"]), done.stderr


def test_a_python_whose_tests_fail_fails_all_and_hinders_no_other(machine: Machine) -> None:
    machine.put("bin/python3.11", 3, 11, 7)
    machine.put("bin/python3.12", 3, 12, 1)
    machine.fail_on("3.11")

    done = machine.test()

    assert done.returncode == 1
    assert machine.tested == [".venv-3.11", ".venv-3.12"]
    assert "Python 3.11.7: FAILED in" in done.stdout
    assert "Failed on 3.11.7." in done.stdout


def test_a_python_without_an_environment_was_not_tested(machine: Machine) -> None:
    machine.put("bin/python3.11", 3, 11, 7)
    (machine.root / ".venv-3.11").write_text("no folder")

    done = machine.test()

    assert done.returncode == 1
    assert "its environment could not be made" in done.stdout


def test_the_choice_is_narrowed_by_name(machine: Machine) -> None:
    for minor in (11, 12, 13):
        machine.put(f"bin/python3.{minor}", 3, minor, 0)

    assert machine.test("--only", "3.13 3.11").returncode == 0
    assert machine.tested == [".venv-3.11", ".venv-3.13"]


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("3.11 3.14", "3.14, which this machine does not have"),
        ("3.10", "3.10: Drumline supports 3.11, 3.12, 3.13, 3.14"),
        ("3.15", "3.15: Drumline supports"),
        ("python3.11", "'python3.11': give minor versions"),
        ("3", "'3': give minor versions"),
    ],
)
def test_a_named_python_that_cannot_be_tested_is_an_error(machine: Machine, named: str, said: str) -> None:
    machine.put("bin/python3.11", 3, 11, 7)

    done = machine.test("--only", named)

    assert done.returncode == 2
    assert said in done.stderr
    assert machine.tested == []


def test_an_environment_is_made_once_and_anew_for_another_python(machine: Machine) -> None:
    machine.put("bin/python3.11", 3, 11, 7)
    machine.test()
    made = (machine.root / ".venv-3.11/bin/python").stat().st_mtime_ns

    machine.test()
    assert (machine.root / ".venv-3.11/bin/python").stat().st_mtime_ns == made

    machine.put("bin/python3.11", 3, 11, 8)
    machine.test()
    assert (machine.root / ".venv-3.11/bin/python").stat().st_mtime_ns > made
