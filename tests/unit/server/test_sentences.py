"""Messages of the SDK as the API says them."""

import pytest

from drumline_server.services.checking import sentence


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("train:main needs the parameter 'epochs' (int)", "train:main needs the parameter 'epochs' (int)."),
        ("train.py, line 3: invalid syntax", "train.py, line 3: invalid syntax."),
        ("package/train.py has 3 bytes", "package/train.py has 3 bytes."),
        ("the program has no entrypoint 'a:b'", "The program has no entrypoint 'a:b'."),
        ("did you mean 'x'?", "Did you mean 'x'?"),
    ],
)
def test_a_name_at_the_beginning_stays_as_it_is(said: str, told: str) -> None:
    assert sentence(said) == told
