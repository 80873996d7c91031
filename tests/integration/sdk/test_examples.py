"""Models of other libraries, as their users write them, give the same training on eight replicas as on one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def trained(example: str, replicas: int) -> float:
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
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 0, ended.stderr
    return float(json.loads(ended.stdout.splitlines()[-1])["loss"])


@pytest.mark.parametrize("example", ["optax_mlp.py", "flax_mnist_like.py", "equinox_mlp.py"])
def test_eight_replicas_train_as_one_does_with_a_last_batch_that_leaves_three_of_them_empty(example: str) -> None:
    loss = trained(example, 8)
    assert loss < 1.6  # ln 10 = 2.3 knows nothing
    assert loss == pytest.approx(trained(example, 1), rel=1e-4)


def test_digits_killed_in_the_middle_ends_as_if_left_alone(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "digits.py"), "--platform", "cpu", "--replicas", "3", "--epochs", "6"]
    left_alone = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)

    resumable = [*command, "--checkpoint-dir", str(tmp_path)]
    first = subprocess.Popen(resumable, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert first.stdout is not None
    begun = [line for line, _ in zip(first.stdout, range(3), strict=False)]
    first.kill()
    first.communicate(timeout=60)
    second = subprocess.run(resumable, capture_output=True, text=True, timeout=240, check=True)

    lines, goes_on_with = left_alone.stdout.splitlines(), second.stdout.splitlines()
    assert [line.rstrip() for line in begun] == lines[:3]
    assert 2 < len(goes_on_with) < len(lines)
    assert goes_on_with == lines[-len(goes_on_with) :]
