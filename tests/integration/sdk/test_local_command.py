"""Programs that run by themselves, each in a process of its own."""

import ctypes
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

from support.forks import Program, Programs

HEAD = "import jax.numpy as jnp\nimport drumline.distribute as dist\n"
TAIL = "\nif __name__ == '__main__':\n    import drumline.local\n    drumline.local.run(main)\n"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    started = Programs(tmp_path_factory.mktemp("programs"))
    yield started
    started.close()


@dataclass(frozen=True)
class Local:
    """Starts programs as `python program.py --platform cpu`."""

    directory: Path
    programs: Programs

    def start(self, source: str, *flags: str) -> Program:
        path = self.directory / "program.py"
        path.write_text(HEAD + dedent(source) + TAIL)
        return self.programs.start(path, "--platform", "cpu", *flags)

    def run(self, source: str, *flags: str) -> tuple[int, str, str]:
        """Exit status, stdout, stderr."""
        return self.start(source, *flags).end()

    @contextmanager
    def running(self, source: str) -> Iterator[Program]:
        """The program once it said `ready`; killed if it outlives the test."""
        program = self.start(source)
        try:
            assert program.stdout.readline() == "ready\n"
            yield program
        finally:
            program.kill()


@pytest.fixture
def local(tmp_path: Path, programs: Programs) -> Local:
    return Local(tmp_path, programs)


def test_flags_come_from_the_signature_and_the_result_is_json_on_stdout(local: Local) -> None:
    source = '''
        def main(run, *, rate: float, deep: bool = False, sizes=(1,), name: str = "x"):
            """Shows what it got."""
            print("printed", flush=True)
            return {**run.parameters, "replicas": run.strategy.num_replicas_in_sync, "loss": jnp.float32(0.5)}
    '''
    flags = ["--replicas", "3", "--rate", "2", "--deep", "--sizes", "[1, 2]"]
    code, out, err = local.run(source, *flags)
    assert (code, out.splitlines()[0]) == (0, "printed"), err
    assert json.loads(out.splitlines()[-1]) == {
        "rate": 2.0, "deep": True, "sizes": [1, 2], "name": "x", "replicas": 3, "loss": 0.5,
    }  # fmt: skip
    assert "mirrored: 3 replicas on 3 simulated CPU devices" in err


def test_help_is_the_docstring_with_a_flag_for_each_parameter(local: Local) -> None:
    code, out, _ = local.run('def main(run, *, learning_rate: float = 0.1):\n    """Trains it."""', "--help")
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
def test_wrong_usage_exits_with_2_and_one_line(local: Local, source: str, flags: list[str], said: str) -> None:
    code, _, err = local.run(source, *flags)
    assert code == 2, err
    assert said in err
    assert "Traceback" not in err


def test_program_that_raises_exits_with_1_and_its_own_traceback(local: Local) -> None:
    code, out, err = local.run("def main(run):\n    raise ValueError('bad rate')")
    assert (code, out) == (1, "")
    assert "ValueError: bad rate" in err
    assert "program.py" in err
    assert "drumline/local" not in err


def test_result_that_is_no_json_exits_with_1_and_names_its_place(local: Local) -> None:
    code, _, err = local.run("def main(run):\n    return {'model': object()}")
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
def test_sigterm_stops_the_program_at_its_next_step(local: Local, body: str) -> None:
    source = f"""
    def main(run):
        print("ready", flush=True)
        {body}
    """
    with local.running(source) as program:
        program.send_signal(signal.SIGTERM)
        code, _, err = program.end()
    assert code == 143, err
    assert "stopped on request" in err


def test_sigterm_that_reaches_another_thread_stops_a_program_busy_in_python(local: Local) -> None:
    """The kernel may deliver to any thread, and CPython alone then tells a busy main thread nothing."""
    source = """
    def main(run):
        run.strategy.run(lambda: jnp.zeros(1))
        print("ready", flush=True)
        while not run.should_stop:
            pass
        run.log(step=1)
    """
    with local.running(source) as program:
        threads = sorted(int(task.name) for task in Path(f"/proc/{program.pid}/task").iterdir())
        threads.remove(program.pid)
        ctypes.CDLL(None, use_errno=True).tgkill(program.pid, threads[0], signal.SIGTERM)
        code, _, err = program.end()
    assert code == 143, err
    assert "stopped on request" in err


def test_run_goes_on_from_its_last_checkpoint(local: Local, tmp_path: Path) -> None:
    source = """
        def main(run):
            state = run.restore() or {"step": 0}
            run.checkpoint({"step": state["step"] + 1}, step=state["step"] + 1)
            return state["step"]
    """
    flags = ["--checkpoint-dir", str(tmp_path / "checkpoints")]
    assert [local.run(source, *flags)[1] for _ in range(3)] == ["0\n", "1\n", "2\n"]
