"""Models of other libraries, as their users write them, give the same training on eight replicas as on one."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.forks import Programs

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
LIBRARIES = ("equinox", "flax.nnx", "optax", "sklearn.datasets")
ENDS_S = 240.0


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    started = Programs(tmp_path_factory.mktemp("programs"), imports=LIBRARIES)
    yield started
    started.close()


def completed(programs: Programs, example: str, *flags: str) -> list[str]:
    """The lines that it prints."""
    code, out, err = programs.start(EXAMPLES / example, "--platform", "cpu", *flags).end(ENDS_S)
    assert code == 0, err
    return out.splitlines()


def trained(programs: Programs, example: str, replicas: int) -> float:
    lines = completed(programs, example, "--replicas", str(replicas), "--epochs", "2")
    return float(json.loads(lines[-1])["loss"])


_ALIKE = pytest.mark.long("the program of optax_mlp.py with a module in place of a tree of weights")


@pytest.mark.parametrize(
    "example",
    [
        "optax_mlp.py",
        pytest.param("flax_mnist_like.py", marks=_ALIKE),
        pytest.param("equinox_mlp.py", marks=_ALIKE),
    ],
)
def test_eight_replicas_train_as_one_does_with_a_last_batch_that_leaves_three_of_them_empty(
    example: str, programs: Programs
) -> None:
    loss = trained(programs, example, 8)
    assert loss < 1.6  # ln 10 = 2.3 knows nothing
    assert loss == pytest.approx(trained(programs, example, 1), rel=1e-4)


def test_digits_killed_in_the_middle_ends_as_if_left_alone(tmp_path: Path, programs: Programs) -> None:
    flags = ["--replicas", "3", "--epochs", "6"]
    lines = completed(programs, "digits.py", *flags)

    resumable = [*flags, "--checkpoint-dir", str(tmp_path)]
    first = programs.start(EXAMPLES / "digits.py", "--platform", "cpu", *resumable)
    begun = [line for line, _ in zip(first.stdout, range(3), strict=False)]
    first.kill()
    goes_on_with = completed(programs, "digits.py", *resumable)

    assert [line.rstrip() for line in begun] == lines[:3]
    assert 2 < len(goes_on_with) < len(lines)
    assert goes_on_with == lines[-len(goes_on_with) :]
