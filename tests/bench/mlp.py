"""What every system trains in `make bench-engine`: a multilayer perceptron by plain SGD. Needs numpy only."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

LEARNING_RATE = 0.05
GLOBAL_BATCH = 256
PIPELINE_BATCHES = 16

FloatArray = np.ndarray[Any, np.dtype[np.float32]]
IntArray = np.ndarray[Any, np.dtype[np.int32]]

#: Layer widths by name.
SIZES = {"tiny": (64, 256, 10), "mlp784": (784, 512, 512, 10)}


@dataclass(frozen=True)
class Task:
    """One network on one number of replicas; ``feed``: "fixed" (one batch that is on the devices) or "pipeline"."""

    size: str
    feed: str
    replicas: int

    @property
    def case(self) -> str:
        """The name in the results."""
        return f"{self.size}/{self.feed}"

    def weights(self) -> list[FloatArray]:
        """Kernel and bias of each layer, the same for every system."""
        random = np.random.default_rng(7)
        widths = SIZES[self.size]
        made: list[FloatArray] = []
        for width, following in pairwise(widths):
            kernel = random.standard_normal((width, following)) * np.sqrt(2 / width)
            made += [kernel.astype(np.float32), np.zeros(following, np.float32)]
        return made

    def rows(self) -> tuple[FloatArray, IntArray]:
        """Images and labels: one global batch if fixed, else as many as the pipeline repeats."""
        random = np.random.default_rng(11)
        count = GLOBAL_BATCH * (1 if self.feed == "fixed" else PIPELINE_BATCHES)
        images = random.random((count, SIZES[self.size][0]), np.float32)
        return images, random.integers(0, 10, count).astype(np.int32)
