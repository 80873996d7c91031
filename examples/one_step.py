"""The smallest job: one step, one reduction. Benchmarks time everything around it."""

import jax.numpy as jnp

import drumline.distribute as dist
from drumline.job import RunContext


def main(run: RunContext) -> dict[str, float]:
    """Adds up the numbers of all replicas."""
    strategy = run.strategy
    run.set_total_steps(1)
    ids = strategy.run(lambda: jnp.float32(dist.get_replica_context().replica_id_in_sync_group))
    total = strategy.reduce("sum", ids, axis=None, name="replica_ids")
    run.log(step=0, total=total)
    return {"total": float(total)}


if __name__ == "__main__":
    import drumline.local

    drumline.local.run(main)
