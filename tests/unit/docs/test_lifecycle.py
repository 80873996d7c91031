"""docs/lifecycle.md names functions that exist; `make house` compares their order with what really runs."""

import re

from support.code_names import ROOT, read_code

PAGE = (ROOT / "docs" / "lifecycle.md").read_text()
SECTIONS = {text.partition("\n")[0]: text for text in PAGE.split("\n## ")[1:]}
_STEP = re.compile(r"^(\d+)\. (.*)", re.MULTILINE)
_TRACES = {"submit", "reduction", "line of output", "cancel", "host dies", "first step", "next step"}


def test_every_step_begins_with_a_function_that_exists() -> None:
    steps = _STEP.findall(PAGE)
    named = {f"{number}. {text}": re.match(r"`([\w.]+)`", text) for number, text in steps}

    assert len(steps) > 80
    assert [step for step, name in named.items() if name is None or not read_code().finds_function(name[1])] == []


def test_steps_are_numbered_from_one() -> None:
    for title, section in SECTIONS.items():
        numbers = [int(number) for number, _ in _STEP.findall(section)]

        assert numbers == [*range(1, len(numbers) + 1)], title


def test_every_trace_has_its_section_and_one_only() -> None:
    told = [trace for section in SECTIONS.values() for trace in re.findall(r"<!-- trace: ([\w ]+) -->", section)]

    assert sorted(told) == sorted(_TRACES)
