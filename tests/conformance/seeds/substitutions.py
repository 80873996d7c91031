"""The one table by which the pages' examples become programs of ours."""

import re

SUBSTITUTIONS: tuple[tuple[str, str], ...] = (
    (r"^ *@tf\.function.*\n", ""),
    (r"tf\.distribute\.experimental\.", "dist."),
    (r"tf\.distribute\.", "dist."),
    (r"tf\.config\.experimental_connect_to_cluster\(", "dist.initialize("),
    (r"tf\.tpu\.experimental\.", "dist.tpu."),
    (r"(?:tf\.data|dataset_ops)\.Dataset\.TFRecordDataset\(", "dist.Dataset.tf_records("),
    (r"tf\.data\.", "dist."),
    (r"tf\.add\(", "jnp.add("),
    (r'"/a/(\d)\.tfr"', r"fixture('\1.tfr')"),
    (r"GPU:0", "CPU:1"),
    (r"= (strategy\.reduce\(.*\))\.numpy\(\)", r"= np.asarray(\1)"),
)
"""(what a page says, what we say): no `tf.function`, other modules, files of the test's own, CPU devices alone,
arrays of JAX, which are NumPy's by `np.asarray`."""


def port(example: str) -> str:
    """The example as a program of ours: the table applied from its top, and nothing else."""
    for pattern, text in SUBSTITUTIONS:
        example = re.sub(pattern, text, example, flags=re.MULTILINE)
    return example
