"""What a dataset function is told about the pipeline it builds."""

from __future__ import annotations

from dataclasses import dataclass

from drumline.distribute.errors import InvalidValueError


@dataclass(frozen=True, slots=True)
class InputContext:
    """Which of how many input pipelines a dataset function builds, and how many replicas step together."""

    num_input_pipelines: int = 1
    input_pipeline_id: int = 0
    num_replicas_in_sync: int = 1

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """Rows of one replica's batch; ValueError when the replicas can't share ``global_batch_size`` evenly."""
        replicas = self.num_replicas_in_sync
        rows, left_over = divmod(global_batch_size, replicas)
        if left_over:
            below = rows * replicas
            fits = f"{below} or {below + replicas}" if below else f"{replicas}"
            raise InvalidValueError(
                f"global batch {global_batch_size} does not divide over {replicas} replicas; use {fits}"
            )
        return rows
