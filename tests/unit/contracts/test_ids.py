"""Ids as they come over a border."""

import pytest
from pydantic import TypeAdapter, ValidationError

from drumline.contracts.base import RunId, is_id, new_id

_BODY = "01JD0C5K7W8M9N0P1Q2R3S4T5V"


@pytest.mark.parametrize("text", ["run_1", f"job_{_BODY}", f"run_{_BODY}\n", f" run_{_BODY}", "", 7])
def test_what_is_no_id_of_the_kind_is_refused_with_how_one_looks(text: object) -> None:
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(RunId).validate_python(text)

    (error,) = refused.value.errors(include_url=False)
    assert "is no id of this kind; one looks like run_01JD0C5K7W..." in error["msg"]
    assert not is_id(str(text), "run")


def test_new_id_is_one_of_its_kind() -> None:
    text = new_id("run")

    assert TypeAdapter(RunId).validate_python(text) == text
    assert is_id(text, "run")
    assert is_id(f"run_{_BODY}", "run")
