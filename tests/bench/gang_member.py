"""One process of the gang of `make bench-engine`: says when it is ready, then answers each line with a line of JSON.

TF_CONFIG tells its place. A question names a system and a number of steps; the answer is their seconds and last loss.
"""

import json
import sys
from typing import Any

import jax

import drumline.distribute as dist


def main() -> None:
    """Ready is: all processes have met, and a value of every replica has been reduced by the strategy."""
    size, devices = sys.argv[1], int(sys.argv[2])
    dist.set_cpu_devices(devices)
    dist.initialize()
    strategy = dist.MirroredStrategy()
    numbers = strategy.distribute_values_from_function(lambda context: float(context.replica_id_in_sync_group))
    _say({"replicas": strategy.num_replicas_in_sync, "sum": float(strategy.reduce("sum", numbers, axis=None))})
    if size:
        _answer(size, strategy)
    jax.distributed.shutdown()


def _answer(size: str, strategy: dist.Strategy) -> None:
    from bench import engine_contenders
    from bench.engine_rounds import HAND, HAND_AGAIN, OURS, timed
    from bench.mlp import Task

    task = Task(size, "fixed", strategy.num_replicas_in_sync)
    systems = {
        HAND: timed(engine_contenders.hand_written(task)),
        OURS: timed(engine_contenders.drumline(task, strategy)),
        HAND_AGAIN: timed(engine_contenders.hand_written(task)),
    }
    for line in sys.stdin:
        name, steps = json.loads(line)
        seconds, loss = systems[name](steps)
        _say({"seconds": seconds, "loss": loss})


def _say(answer: dict[str, Any]) -> None:
    # In one write: Gloo's threads print to the same pipe, and may come between a line and its end.
    sys.stdout.write(f"\ntold {json.dumps(answer)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
