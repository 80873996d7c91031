"""The tree in the docstring is the tree of the classes."""

import inspect
import re

from drumline import errors


def _drawn() -> dict[str, str]:
    """Class to parent, as the docstring draws them."""
    parents: dict[str, str] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.search(r"\b([A-Z]\w+Error)\b", line)
        if match is None:
            continue
        depth = match.start() // 4
        del path[depth:]
        parents[match[1]] = path[-1] if path else "Exception"
        path.append(match[1])
    return parents


def test_docstring_draws_every_class_under_its_parent() -> None:
    real = {
        name: value.__bases__[0].__name__
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, Exception)
    }
    assert _drawn() == real


def test_wait_timeout_is_a_timeout_error_too() -> None:
    assert issubclass(errors.WaitTimeoutError, TimeoutError)
