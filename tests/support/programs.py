"""Small job programs for tests, written to files as a user would."""

import textwrap
from pathlib import Path

ENDLESS = '''
    import time

    import jax.numpy as jnp

    import drumline.distribute as dist


    def main(run):
        """Steps until it is told to stop, and leaves the processor to others in between."""
        step = 0
        while True:
            run.strategy.run(lambda: dist.all_reduce("sum", jnp.float32(1)))
            run.log(step=step, loss=1.0)
            step += 1
            time.sleep(0.05)
'''

DEAF = '''
    import signal
    import time

    from drumline.job import RunStopping


    def main(run):
        """Ignores that it should stop, and SIGTERM too."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        step = 0
        while True:
            try:
                run.log(step=step, loss=1.0)
            except RunStopping:
                pass
            step += 1
            time.sleep(0.05)
'''

RAISES = '''
    def main(run):
        """Fails."""
        print("about to fail")
        raise ValueError("the learning rate went out for a walk")
'''

ONE_STEP = '''
    import jax.numpy as jnp

    import drumline.distribute as dist


    def main(run, *, scale: float = 1.0):
        """One all-reduce over all replicas."""
        strategy = run.strategy
        total = strategy.run(lambda: dist.all_reduce("sum", jnp.float32(scale)))
        run.log(step=0, total=strategy.local_results(total)[0])
        return {"replicas": strategy.num_replicas_in_sync}
'''


class Programs:
    """A directory of programs."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, name: str, source: str) -> Path:
        """The path of `{name}.py`."""
        path = self._directory / f"{name}.py"
        path.write_text(textwrap.dedent(source).lstrip())
        return path
