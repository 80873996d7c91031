"""What can go wrong in the engine, one class per thing a caller can do about it.

Every class also is the builtin that a caller coming from TensorFlow would catch (ValueError, RuntimeError, ...).
"""

import json


class DistributeError(Exception):
    """Base of every error the engine raises on purpose."""


class ContextError(DistributeError, RuntimeError):
    """A call made in the wrong context: replica code in cross-replica context, or the other way round."""


class CollectiveError(DistributeError, RuntimeError):
    """Replicas of one step don't reach the same collectives in the same order, or disagree about their shapes."""


class InvalidValueError(DistributeError, ValueError):
    """A value, shape, dtype or axis that the call cannot take; the message names it and the fix."""


class NotPlannableError(DistributeError, RuntimeError):
    """A program, or its next step, can't be compiled for devices that are not there; the message says why."""


class CollectiveShapeError(CollectiveError, InvalidValueError):
    """Replicas bring different shapes, dtypes or structures to one collective or output."""


class InvalidTypeError(DistributeError, TypeError):
    """A value of a kind (bool, string, ...) for which the call has no meaning."""


class NoSumError(InvalidValueError, InvalidTypeError):
    """A sum of bools or strings. TensorFlow raises a TypeError with an axis and complains of the value without."""


class CutOffError(InvalidValueError, InvalidTypeError):
    """A fractional value for something that holds whole numbers. TensorFlow raises either, by where it notices."""


class MissingReplicaError(InvalidValueError, IndexError):
    """A per-replica value made for another number of replicas than the strategy has."""


class OutsideMeshError(InvalidValueError, IndexError):
    """Coordinates that a topology's mesh does not have, or at which no device is."""


class DuplicateTaskError(InvalidValueError, KeyError):
    """Two addresses for one task of a cluster."""

    __str__ = Exception.__str__  # KeyError would show the message in quotes


class ClusterError(DistributeError, RuntimeError):
    """The environment tells no cluster, or another one than was asked for; or its processes did not meet."""


class ProcessesDifferError(DistributeError, RuntimeError):
    """Processes of one program have another value or program than the others, or failed; ``processes`` are those.

    ``have_failed``: they raised an error of their own, which the message names.
    """

    def __init__(self, message: str, processes: tuple[int, ...] = (), *, have_failed: bool = False) -> None:
        super().__init__(message)
        self.processes = processes
        self.have_failed = have_failed


class NotJSONError(InvalidValueError, json.JSONDecodeError):
    """A variable that must hold JSON holds something else."""


class MissingPackageError(DistributeError, ImportError):
    """A package that only this call needs is not installed; the message says how to get it."""


class UnsupportedError(DistributeError, NotImplementedError):
    """The operation is defined for other values or strategies, not for this one."""


class DonatedError(DistributeError, RuntimeError):
    """An argument was read whose memory a step was given: RunOptions(donate=...) names it."""


class VariableScopeError(DistributeError, RuntimeError):
    """A variable read or written where its value is not known: inside ``jit`` outside ``run``, vmap, checkpoint."""


class StateLostError(DistributeError, RuntimeError):
    """A step failed after its variables were donated: their values are gone and must be restored.

    ``last_checkpoint`` is the path of the last checkpoint this process wrote or restored, or None.
    """

    def __init__(self, message: str, last_checkpoint: str | None = None) -> None:
        super().__init__(message)
        self.last_checkpoint = last_checkpoint


class StaleProgramError(DistributeError, RuntimeError):
    """A compiled step is out of date: traced again it is another program (``RunOptions(check_stale=True)``)."""


class DistributeWarning(UserWarning):
    """Base of the engine's warnings."""


class DivergingCopiesWarning(DistributeWarning):
    """Copies of one variable are updated on their own and will differ between replicas."""


class RetraceWarning(DistributeWarning):
    """The same code was traced again and again: a new function is made per step, or what it captures changes."""


class MeanOfMeansWarning(DistributeWarning):
    """Per-replica means over different numbers of rows are averaged without their weights."""
