"""Programs of the recorded world."""

MEASURING = '''
    import os

    import numpy as np

    import drumline.distribute as dist


    def main(run, *, points: int = 40, odd: bool = False, fail: str = "", seed: int = 0):
        """Logs, reduces, prints and saves; fails at the end if it is to, `once` in its first attempt only."""
        strategy = run.strategy
        with strategy.scope():
            weight = dist.Variable(np.float32(seed), name="weight", aggregation="mean")
        state = run.restore({"total": np.float64(0.0), "weight": weight})
        began_at, total = run.next_step, float(state["total"])
        if odd:
            log_odd_things(run)
        for step in range(began_at, points):
            total += 1.0 / (step + 3)
            if step < 8 or step % 500 == 0:
                value = strategy.run(lambda: weight.value + dist.get_replica_context().replica_id_in_sync_group)
                strategy.reduce("mean", value, axis=None, name="value")
                strategy.reduce("sum", value, axis=None, name="nested/sum")
                print("step", step, "\\N{SNOWMAN}")
            run.log(step=step, total=total, loss=1.0 / (step + 1))
            run.checkpoint({"total": np.float64(total), "weight": weight}, step=step)
        if fail == "always" or (fail == "once" and not began_at):
            raise ValueError("it was to fail: \\N{GREEK SMALL LETTER ALPHA} <b>&amp;</b>")
        return {"total": total, "began_at": began_at, "text": "\\N{SNOWMAN} 'x' \\"y\\" \\\\\\\\ \\u0007"}


    def log_odd_things(run):
        odd = [float("nan"), float("inf"), float("-inf"), 5e-324, 2.2250738585072014e-308 / 3, 1e308, -1e308, -0.0, 0.1]
        for step, value in enumerate(odd):
            run.log(step=step, odd=value, **{"a/b c": -value})
        os.write(1, b"not utf-8: \\xff\\xfe\\x80 nul: \\x00 cut: \\xe2\\x82")
        os.write(1, b"\\r carriage\\r\\n\\x1b[31mred\\x1b[0m tab\\tno end of line")
        os.write(2, b"\\nerr\\n" + b"long" * 3000 + b"\\n")
'''
STEPPING = '''
    import os
    import time

    import numpy as np


    def main(run, *, until: str = "", steps: int = 100_000):
        """Steps and saves until the file `until` is there, or it is stopped."""
        run.restore({"step": np.int64(-1)})
        step = began_at = run.next_step
        while step < steps and not (until and os.path.exists(until)):
            print("step", step)
            run.log(step=step, loss=1.0 / (step + 1))
            run.checkpoint({"step": np.int64(step)}, step=step)
            time.sleep(0.1)
            step += 1
        return {"steps": step, "began_at": began_at}
'''
GANG = '''
    import jax
    import jax.numpy as jnp
    from jax.experimental import multihost_utils


    def main(run, *, steps: int = 10):
        """Meets at every step over all hosts."""
        total = 0
        for step in range(steps):
            total += int(multihost_utils.process_allgather(jnp.int32(step + jax.process_index())).sum())
            run.log(step=step, total=float(total))
        return {"total": total, "processes": jax.process_count()}
'''
