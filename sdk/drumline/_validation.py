"""Values that a contract refuses, as errors of ours."""

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from drumline.contracts.problems import ProblemCode
from drumline.contracts.suggestions import in_words
from drumline.errors import ParameterError


@contextmanager
def typed_errors(part: str = "") -> Iterator[None]:
    """Turns the first refusal of a contract into a ParameterError that names the field and shows the value.

    `part` is where in a submission the contract stands, such as `retries`.
    """
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(step) for step in ((part, *first["loc"]) if part else first["loc"]))
        shown = ascii(first["input"])
        message = f"{name}={shown if len(shown) <= 80 else shown[:77] + '...'}: {in_words(first)}"
        raise ParameterError(ProblemCode.BAD_PARAMETER, message, name) from None
