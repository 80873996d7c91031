"""What a worker tells of a program: its first collectives, and sums over all of them."""

from drumline.contracts.programs import MAX_COLLECTIVES, StepProgram
from drumline.distribute.observe import CollectiveOperation, DispatchedProgram
from drumline_worker.runner.observer import program_fields


def _operation(kind: str, op: str | None, size: int, times: int | None, *, crosses: bool = True) -> CollectiveOperation:
    return CollectiveOperation("w", kind, op, (size // 4,), "float32", size, times, is_observed=False, crosses=crosses)


def test_sums_are_over_all_collectives_and_leave_out_what_depends_on_values() -> None:
    operations = [_operation("all_reduce", "mean", 8, 2)] * (MAX_COLLECTIVES + 3)
    operations += [_operation("all_reduce", "mean", 16, None), _operation("all_gather", None, 4, 1, crosses=False)]
    told = StepProgram.model_validate(program_fields(DispatchedProgram("train", "d", "spmd", tuple(operations))))

    assert (len(told.collectives), told.more_collectives) == (MAX_COLLECTIVES, 5)
    assert [tuple(total.model_dump().values()) for total in told.totals] == [
        ("all_reduce", "mean", True, MAX_COLLECTIVES + 4, 2 * (MAX_COLLECTIVES + 3), 16 * (MAX_COLLECTIVES + 3), 1),
        ("all_gather", None, False, 1, 1, 4, 0),
    ]


def test_a_program_without_exchanges_says_so() -> None:
    told = StepProgram.model_validate(program_fields(DispatchedProgram("train", "d", "spmd", ())))
    assert (told.collectives, told.totals, told.more_collectives) == ((), (), 0)
