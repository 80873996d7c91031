"""Programs of chaos tests. They witness what really ran: each step writes a line, whatever the server hears."""

import textwrap
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

STEPPING = '''
    import os
    import time

    import numpy as np


    def main(run, *, witness: str, enough: str = "", steps: int = 10_000, step_s: float = 0.1):
        """Steps and saves until the file `enough` is there, resumes where an earlier attempt stood, and witnesses."""
        run.restore({"step": np.int64(-1)})
        began_at = run.next_step
        step = began_at
        with open(witness, "a", buffering=1) as lines:
            while step < steps and not os.path.exists(enough):
                lines.write(f"{os.getpid()} {time.clock_gettime(time.CLOCK_BOOTTIME)} {step}\\n")
                print("step", step)
                run.log(step=step, loss=1.0 / (step + 1))
                run.checkpoint({"step": np.int64(step)}, step=step)
                time.sleep(step_s)
                step += 1
        return {"steps": step, "began_at": began_at}
'''
QUICK = '''
    def main(run):
        """Returns at once."""
        return 1
'''

PACING = '''
    import itertools
    import os
    import time


    def main(run, *, steps: int = 40, until: str = ""):
        """Makes so many slow steps, or steps until there is a file; keeps nothing."""
        for step in itertools.count():
            if os.path.exists(until) if until else step >= steps:
                return step
            run.log(step=step, x=1.0)
            time.sleep(0.1)
'''

TOGETHER = '''
    import itertools
    import os
    import time

    import jax
    import jax.numpy as jnp
    from jax.experimental import multihost_utils


    def main(run, *, enough: str):
        """Meets at every step, and saves each third one, until one of its members finds the file `enough`."""
        value = int(run.restore({"value": 0})["value"])
        for step in itertools.count(run.next_step):
            own = jnp.int32([1 + jax.process_index(), os.path.exists(enough)])
            ranks, over = multihost_utils.process_allgather(own).sum(axis=0).tolist()
            value += ranks
            run.log(step=step, value=float(value))
            run.checkpoint({"value": value}, step=step)
            if over:
                return {"value": value, "steps": step + 1}
            time.sleep(0.05)
'''


def write_program(directory: Path, source: str, name: str = "program") -> Path:
    """The file to submit."""
    path = directory / f"{name}.py"
    path.write_text(textwrap.dedent(source).lstrip())
    return path


@dataclass(frozen=True, slots=True)
class Execution:
    """One process that ran the program: its first and last step in seconds of CLOCK_BOOTTIME, and its steps."""

    began: float
    ended: float
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Witness:
    """The file that STEPPING writes to."""

    path: Path

    def executions(self) -> list[Execution]:
        """One per process, the earliest first."""
        times: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                pid, at, step = line.split()
                times[pid].append((float(at), int(step)))
        found = [Execution(seen[0][0], seen[-1][0], tuple(step for _, step in seen)) for seen in times.values()]
        return sorted(found, key=lambda execution: execution.began)

    @property
    def steps(self) -> int:
        """How many steps were made, by whomever."""
        return sum(len(execution.steps) for execution in self.executions())

    @property
    def enough(self) -> Path:
        """The program returns when this file is there."""
        return self.path.with_suffix(".enough")

    @property
    def parameters(self) -> dict[str, str]:
        """For the submission."""
        return {"witness": str(self.path), "enough": str(self.enough)}

    def overlap_s(self) -> float:
        """The longest time for which two processes ran at once; negative: the shortest pause between two."""
        executions = self.executions()
        return max((earlier.ended - later.began for earlier, later in pairwise(executions)), default=float("-inf"))
