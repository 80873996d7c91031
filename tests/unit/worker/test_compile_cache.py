"""Compilation caches: bounded together, and cleared of what other versions of JAX compiled."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from drumline_worker.agent.host_cache import CompiledEntries, clear_compiled, evict_compiled, use_compiled


def entries(current: Path, version: str, *sizes: int, used: float) -> Path:
    """A directory with entries `0-cache`, `1-cache` ... written one second after the other, and used at that time."""
    current.mkdir(parents=True, exist_ok=True)
    directory = use_compiled(current / version)
    for number, size in enumerate(sizes):
        path = directory / f"{number}-cache"
        path.write_bytes(bytes(size))
        os.utime(path, (used + number, used + number))
    os.utime(directory, (used, used))
    return directory


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_entries_of_the_version_that_was_not_run_for_longest_go_first(tmp_path: Path) -> None:
    newest = entries(tmp_path, "ver_c", 10, 10, used=3_000)
    oldest = entries(tmp_path, "ver_a", 30, used=1_000)
    middle = entries(tmp_path, "ver_b", 20, 20, used=2_000)

    evict_compiled(tmp_path, 50)

    assert (names(oldest), names(middle), names(newest)) == ([], ["1-cache"], ["0-cache", "1-cache"])


def test_a_version_that_is_run_again_outlives_others_and_one_that_lost_entries_is_no_younger(tmp_path: Path) -> None:
    first, second = (entries(tmp_path, name, 10, 10, used=used) for name, used in (("ver_a", 1_000), ("ver_b", 1_001)))

    evict_compiled(tmp_path, 30)
    evict_compiled(tmp_path, 25)
    assert (names(first), names(second)) == ([], ["0-cache", "1-cache"])
    third = entries(tmp_path, "ver_c", 10, used=1_002)
    use_compiled(second)
    evict_compiled(tmp_path, 20)

    assert (names(second), names(third)) == (["0-cache", "1-cache"], [])


def test_what_other_versions_of_jax_compiled_is_deleted_but_not_under_a_program_that_runs(tmp_path: Path) -> None:
    runs = entries(tmp_path / "1.0", "ver_a", 1, used=1)
    over = entries(tmp_path / "0.9", "ver_a", 1, used=1)
    current = tmp_path / "1.1"
    empty, full = entries(current, "ver_a", used=1), entries(current, "ver_b", 1, used=1)

    clear_compiled(current, {runs})

    assert [path.exists() for path in (runs, over.parent, empty, full)] == [True, False, False, True]


def test_only_what_was_there_when_a_program_of_the_version_ended_is_used(tmp_path: Path) -> None:
    directory = entries(tmp_path / "1.0", "ver_a", 10, 10, 10, used=1)
    tuned = directory / "xla_gpu_per_fusion_autotune_cache_dir" / "fusion.textproto"
    tuned.parent.mkdir()
    tuned.write_text("fast")
    CompiledEntries(tmp_path / "compiled.json").record(directory)
    (directory / "1-cache").write_bytes(b"changed")
    (directory / "2-cache").unlink()
    (directory / "2-cache").symlink_to(directory / "0-cache")
    (directory / "planted").mkdir()
    (directory / "planted" / "3-cache").write_bytes(b"new")

    CompiledEntries(tmp_path / "compiled.json").verify(directory)

    assert [path.name for path in directory.rglob("*") if path.is_file()] == ["0-cache", "fusion.textproto"]


def test_what_was_changed_while_a_program_ran_keeps_the_hash_that_it_had(tmp_path: Path) -> None:
    directory = entries(tmp_path / "1.0", "ver_a", 10, used=1)
    known = CompiledEntries(tmp_path / "compiled.json")
    known.record(directory)
    (directory / "0-cache").write_bytes(b"changed")
    known.record(directory)

    known.verify(directory)

    assert names(directory) == []


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b'{"ver_a": 1}'])
def test_entries_whose_hashes_are_gone_or_unreadable_are_compiled_again(tmp_path: Path, content: bytes | None) -> None:
    directory = entries(tmp_path / "1.0", "ver_a", 10, used=1)
    if content is not None:
        (tmp_path / "compiled.json").write_bytes(content)

    CompiledEntries(tmp_path / "compiled.json").verify(directory)

    assert names(directory) == []


def test_hashes_of_versions_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    first, second = (entries(tmp_path / "1.0", name, 10, used=1) for name in ("ver_a", "ver_b"))
    known = CompiledEntries(tmp_path / "compiled.json")
    known.record(first)
    (first / "0-cache").unlink()
    first.rmdir()
    known.record(second)

    assert "ver_a" not in (tmp_path / "compiled.json").read_text()


def test_what_lies_in_directories_of_xla_is_evicted_too(tmp_path: Path) -> None:
    directory = entries(tmp_path, "ver_a", 10, used=1)
    (directory / "tuned").mkdir()
    (directory / "tuned" / "fusion").write_bytes(bytes(10))

    evict_compiled(tmp_path, 0)

    assert [path.name for path in directory.rglob("*") if path.is_file()] == []


PROGRAM = """
import sys
from pathlib import Path
import jax
from drumline_worker.agent.host_cache import evict_compiled, use_compiled
current = Path(sys.argv[1])
directory = use_compiled(current / "ver_a")
jax.config.update("jax_compilation_cache_dir", str(directory))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
def compiled(name):
    return sorted(path.name for path in directory.iterdir() if name in path.name)
def first(x):
    return x * 2 + 1
def second(x):
    return x * 3 - 1
jax.jit(first)(1.0)
assert compiled("jit_first"), "nothing was compiled into the cache"
evict_compiled(current, 0)
assert not list(directory.iterdir()), "the cache was not emptied"
jax.clear_caches()
assert float(jax.jit(first)(1.0)) == 3.0
assert float(jax.jit(second)(1.0)) == 2.0
assert compiled("jit_first") and compiled("jit_second"), "the program did not write on"
"""


def test_a_program_whose_entries_were_deleted_compiles_anew_and_writes_on(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, str(tmp_path)],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (finished.returncode, finished.stderr) == (0, "")
