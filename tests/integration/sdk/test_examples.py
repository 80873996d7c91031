"""Models of other libraries, as their users write them, give the same training on eight replicas as on one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture(scope="session")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which a program is compiled the first time that it runs only, as workers do it."""
    return {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("compiled")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def trained(example: str, replicas: int, environment: dict[str, str]) -> float:
    command = [
        sys.executable,
        str(EXAMPLES / example),
        "--platform",
        "cpu",
        "--replicas",
        str(replicas),
        "--epochs",
        "2",
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment)
    assert ended.returncode == 0, ended.stderr
    return float(json.loads(ended.stdout.splitlines()[-1])["loss"])


@pytest.mark.parametrize("example", ["optax_mlp.py", "flax_mnist_like.py", "equinox_mlp.py"])
def test_eight_replicas_train_as_one_does_with_a_last_batch_that_leaves_three_of_them_empty(
    example: str, compiled_once: dict[str, str]
) -> None:
    loss = trained(example, 8, compiled_once)
    assert loss < 1.6  # ln 10 = 2.3 knows nothing
    assert loss == pytest.approx(trained(example, 1, compiled_once), rel=1e-4)


def test_digits_killed_in_the_middle_ends_as_if_left_alone(tmp_path: Path, compiled_once: dict[str, str]) -> None:
    command = [sys.executable, str(EXAMPLES / "digits.py"), "--platform", "cpu", "--replicas", "3", "--epochs", "6"]
    left_alone = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True, env=compiled_once)

    resumable = [*command, "--checkpoint-dir", str(tmp_path)]
    first = subprocess.Popen(resumable, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=compiled_once)
    assert first.stdout is not None
    begun = [line for line, _ in zip(first.stdout, range(3), strict=False)]
    first.kill()
    first.communicate(timeout=60)
    second = subprocess.run(resumable, capture_output=True, text=True, timeout=240, check=True, env=compiled_once)

    lines, goes_on_with = left_alone.stdout.splitlines(), second.stdout.splitlines()
    assert [line.rstrip() for line in begun] == lines[:3]
    assert 2 < len(goes_on_with) < len(lines)
    assert goes_on_with == lines[-len(goes_on_with) :]
