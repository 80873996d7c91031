"""Values that a contract refuses, as errors of ours."""

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from drumline.contracts.problems import ProblemCode
from drumline.contracts.suggestions import in_words
from drumline.errors import ParameterError


@contextmanager
def typed_errors() -> Iterator[None]:
    """Turns the first refusal of a contract into a ParameterError that names the field and shows the value."""
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        shown = ascii(first["input"])
        message = f"{name}={shown if len(shown) <= 80 else shown[:77] + '...'}: {in_words(first)}"
        raise ParameterError(ProblemCode.BAD_PARAMETER, message, name) from None
