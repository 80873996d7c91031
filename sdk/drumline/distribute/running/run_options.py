"""What a caller tells ``run``, and what a value function is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from drumline.distribute.errors import InvalidTypeError


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How ``run`` treats a step. The ``experimental_`` fields are accepted for TensorFlow's sake and change nothing:
    a ragged batch always runs with its true shapes.

    ``donate``: give the buffers of written variables to the step (False: keep them, True: do), or names of parameters
    whose arguments are given to it as well, such as ``("state",)`` for state that the step returns changed. Reading
    such an argument afterwards raises DonatedError; a step that is one program per replica leaves it as it is.
    ``static_argnames``: parameters of the step that are part of the program, such as a Python number that shapes
    depend on. ``check_stale``: trace the step again at every call and raise StaleProgramError where it differs from
    the compiled one, which then is out of date. Slow: to look for mistakes.
    """

    experimental_enable_dynamic_batch_size: bool = True
    experimental_bucketizing_dynamic_shape: bool = False
    experimental_xla_options: Any = None
    donate: bool | tuple[str, ...] = True
    static_argnames: tuple[str, ...] = ()
    check_stale: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.donate, list):
            object.__setattr__(self, "donate", tuple(self.donate))
        names = self.donate if isinstance(self.donate, tuple) else ()
        if not isinstance(self.donate, (bool, tuple)) or not all(isinstance(name, str) for name in names):
            raise InvalidTypeError(
                f"donate={self.donate!r:.80} is neither True nor False nor names of the step's parameters; write "
                'donate=("state",)'
            )

    @property
    def donated_names(self) -> tuple[str, ...]:
        """The parameters whose arguments are given to the step."""
        return self.donate if isinstance(self.donate, tuple) else ()


@dataclass(frozen=True, slots=True)
class ValueContext:
    """What a ``distribute_values_from_function`` function is told: which replica it makes a value for."""

    replica_id_in_sync_group: int = 0
    num_replicas_in_sync: int = 1
