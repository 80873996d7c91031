"""What was refused."""

import pytest

from drumline.contracts.problems import ProblemCode
from drumline_server.base.errors import DrumlineError


def code_of(refused: pytest.ExceptionInfo[DrumlineError]) -> ProblemCode:
    return refused.value.code
