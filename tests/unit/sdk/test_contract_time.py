"""Times that cross borders are UTC, and every one that is taken can be written again."""

import pytest
from pydantic import TypeAdapter, ValidationError

from drumline.contracts.base import Timestamp, to_micros

_TIME: TypeAdapter[Timestamp] = TypeAdapter(Timestamp)


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("2026-11-20T20:00:00+02:00", "2026-11-20T18:00:00.000000Z"),
        (0, "1970-01-01T00:00:00.000000Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000000Z"),
    ],
)
def test_a_time_is_written_in_utc_and_read_back(given: object, written: str) -> None:
    moment = _TIME.validate_python(given)
    assert _TIME.dump_json(moment).decode() == f'"{written}"'
    assert to_micros(_TIME.validate_json(f'"{written}"')) == to_micros(moment)


@pytest.mark.parametrize(
    "given", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", 2**62, "2026-11-20T18:00:00"]
)
def test_a_time_that_no_store_could_give_back_is_refused(given: object) -> None:
    with pytest.raises(ValidationError):
        _TIME.validate_python(given)
