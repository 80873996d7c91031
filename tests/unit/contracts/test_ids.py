"""Ids as they come over a border."""

import pytest
from pydantic import TypeAdapter, ValidationError

from drumline.contracts.ids import RunId, is_id, new_id


@pytest.mark.parametrize("text", ["run_1", new_id("job"), f"{new_id('run')}\n", f" {new_id('run')}", "", 7])
def test_what_is_no_id_of_the_kind_is_refused_with_how_one_looks(text: object) -> None:
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(RunId).validate_python(text)

    (error,) = refused.value.errors(include_url=False)
    assert "is no id of this kind; one looks like run_01JD0C5K7W..." in error["msg"]
    assert not is_id(str(text), "run")
