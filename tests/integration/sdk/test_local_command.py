"""Programs that run by themselves, each in a process of its own."""

import ctypes
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import pytest

HEAD = "import jax.numpy as jnp\nimport drumline.distribute as dist\n"
TAIL = "\nif __name__ == '__main__':\n    import drumline.local\n    drumline.local.run(main)\n"


def _start(directory: Path, source: str, *flags: str) -> "subprocess.Popen[str]":
    path = directory / "program.py"
    path.write_text(HEAD + dedent(source) + TAIL)
    command = [sys.executable, str(path), "--platform", "cpu", *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextmanager
def _running(directory: Path, source: str) -> "Iterator[subprocess.Popen[str]]":
    """The program once it said `ready`; killed if it outlives the test."""
    with _start(directory, source) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def _run(directory: Path, source: str, *flags: str) -> tuple[int, str, str]:
    process = _start(directory, source, *flags)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def test_flags_come_from_the_signature_and_the_result_is_json_on_stdout(tmp_path: Path) -> None:
    source = '''
        def main(run, *, rate: float, deep: bool = False, sizes=(1,), name: str = "x"):
            """Shows what it got."""
            print("printed", flush=True)
            return {**run.parameters, "replicas": run.strategy.num_replicas_in_sync, "loss": jnp.float32(0.5)}
    '''
    flags = ["--replicas", "3", "--rate", "2", "--deep", "--sizes", "[1, 2]"]
    code, out, err = _run(tmp_path, source, *flags)
    assert (code, out.splitlines()[0]) == (0, "printed"), err
    assert json.loads(out.splitlines()[-1]) == {
        "rate": 2.0, "deep": True, "sizes": [1, 2], "name": "x", "replicas": 3, "loss": 0.5,
    }  # fmt: skip
    assert "mirrored: 3 replicas on 3 simulated CPU devices" in err


def test_help_is_the_docstring_with_a_flag_for_each_parameter(tmp_path: Path) -> None:
    code, out, _ = _run(tmp_path, 'def main(run, *, learning_rate: float = 0.1):\n    """Trains it."""', "--help")
    assert code == 0
    assert "Trains it." in out
    assert "--learning-rate" in out


@pytest.mark.parametrize(
    ("source", "flags", "said"),
    [
        ("def main(run, *, rate: float): pass", [], "Missing option '--rate'"),
        ("def main(run, *, rate: float): pass", ["--rate", "fast"], "not a valid float"),
        ("def main(run, *, rate: float): pass", ["--rate", "nan"], "takes a finite number"),
        ("def main(run, *, sizes=()): pass", ["--sizes", "[1"], "is not JSON"),
        ("def main(run, *, replicas: int = 1): pass", [], "'replicas' has the name of a flag"),
        ("def main(context): pass", [], "no entrypoint"),
        ("def main(run): pass", ["--strategy", "one_device", "--replicas", "2"], "one_device has 1 replica"),
        ("def main(run): pass", ["--platform", "tpu"], "no tpu devices"),
        ("def main(run): pass", ["-s", "executer=spmd"], "did you mean 'executor'"),
        ("jnp.zeros(1)\ndef main(run): pass", ["--replicas", "2"], "set_cpu_devices(2) before"),
    ],
)
def test_wrong_usage_exits_with_2_and_one_line(tmp_path: Path, source: str, flags: list[str], said: str) -> None:
    code, _, err = _run(tmp_path, source, *flags)
    assert code == 2, err
    assert said in err
    assert "Traceback" not in err


def test_program_that_raises_exits_with_1_and_its_own_traceback(tmp_path: Path) -> None:
    code, out, err = _run(tmp_path, "def main(run):\n    raise ValueError('bad rate')")
    assert (code, out) == (1, "")
    assert "ValueError: bad rate" in err
    assert "program.py" in err
    assert "drumline/local" not in err


def test_result_that_is_no_json_exits_with_1_and_names_its_place(tmp_path: Path) -> None:
    code, _, err = _run(tmp_path, "def main(run):\n    return {'model': object()}")
    assert code == 1
    assert "result['model'] is a object" in err


@pytest.mark.parametrize(
    "body",
    [
        "while True:\n            run.log(step=0)",
        "while True:\n            run.strategy.run(lambda: jnp.zeros(1))",
        "while not run.should_stop:\n            pass\n        run.log(step=1)",
    ],
    ids=["log", "strategy.run", "should_stop"],
)
def test_sigterm_stops_the_program_at_its_next_step(tmp_path: Path, body: str) -> None:
    source = f"""
    def main(run):
        print("ready", flush=True)
        {body}
    """
    with _running(tmp_path, source) as process:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 143, err
    assert "stopped on request" in err


def test_sigterm_that_reaches_another_thread_stops_a_program_busy_in_python(tmp_path: Path) -> None:
    """The kernel may deliver to any thread, and CPython alone then tells a busy main thread nothing."""
    source = """
    def main(run):
        run.strategy.run(lambda: jnp.zeros(1))
        print("ready", flush=True)
        while not run.should_stop:
            pass
        run.log(step=1)
    """
    with _running(tmp_path, source) as process:
        threads = sorted(int(task.name) for task in Path(f"/proc/{process.pid}/task").iterdir())
        threads.remove(process.pid)
        ctypes.CDLL(None, use_errno=True).tgkill(process.pid, threads[0], signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 143, err
    assert "stopped on request" in err


def test_run_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    source = """
        def main(run):
            state = run.restore() or {"step": 0}
            run.checkpoint({"step": state["step"] + 1}, step=state["step"] + 1)
            return state["step"]
    """
    flags = ["--checkpoint-dir", str(tmp_path / "checkpoints")]
    assert [_run(tmp_path, source, *flags)[1] for _ in range(3)] == ["0\n", "1\n", "2\n"]
