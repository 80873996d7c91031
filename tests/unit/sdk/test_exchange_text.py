"""What replicas exchange in a step, in lines for a terminal."""

import pytest

from drumline.contracts import api
from drumline.resources.exchange_text import PAYLOAD, exchanges_text

TOTAL = api.ExchangeTotal(
    kind="all_reduce", op="mean", crosses_hosts=True, operations=3, times=4, bytes_per_step=4096, varying=1
)
EXCHANGE = api.Exchange(
    name="w\x1b[2J", kind="all_reduce", op="mean", dtype="float32", shape=(2, 3), size_bytes=24, times=None,
    bytes_per_step=None, crosses_hosts=True,
)  # fmt: skip
PROGRAM = api.ProgramExchanges(
    name="train", digest="d", executor="spmd", totals=(TOTAL,), exchanges=(EXCHANGE,), more=2
)  # fmt: skip


def test_each_program_has_its_sums_and_its_exchanges_with_what_is_counted() -> None:
    lines = exchanges_text(api.Exchanges(programs=(PROGRAM,), more_programs=1, not_recorded=None)).splitlines()

    assert lines[0] == "train (d, spmd)"
    assert lines[2].split() == [
        *("all_reduce", "mean", "yes", "3", "4", "+", "1", "as", "often", "as", "values", "say"),
        *("4.0", "KiB", "(4096", "bytes)"),
    ]
    assert lines[4].split() == ["all_reduce", "mean", "w", "float32[2,", "3]", "yes", "24", "B", "varies"]
    assert lines[5] == "and 2 further exchanges, counted above"
    assert lines[-1] == PAYLOAD
    assert "and 1 further program" in lines


def test_a_sum_of_what_depends_on_values_alone_has_no_bytes() -> None:
    total = TOTAL.model_copy(update={"times": 0, "bytes_per_step": 0})
    program = PROGRAM.model_copy(update={"totals": (total,)})
    assert exchanges_text(api.Exchanges(programs=(program,), not_recorded=None)).splitlines()[2].endswith("say  -")


def test_a_program_that_exchanges_nothing_says_so() -> None:
    alone = PROGRAM.model_copy(update={"totals": (), "exchanges": (), "more": 0})
    told = exchanges_text(api.Exchanges(programs=(alone,), not_recorded=None))
    assert told.startswith("train (d, spmd): its replicas exchange nothing")


@pytest.mark.parametrize(
    ("why", "says"),
    [("no_step", "no step is dispatched yet"), ("jax", "JAX's own collectives"), ("not_told", "not recorded for this")],
)
def test_why_nothing_is_recorded_is_said_in_place_of_numbers(why: api.NotRecorded, says: str) -> None:
    told = exchanges_text(api.Exchanges(not_recorded=why))
    assert says in told
    assert not any(character.isdigit() for character in told)
