"""What a program offers, read from its source alone."""

import time
from contextlib import suppress
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from drumline import bundle, program
from drumline.contracts.api import ProgramEntrypoint
from drumline.errors import (
    BadParameterError,
    EntrypointNotFoundError,
    MissingParameterError,
    ProgramError,
    ProgramSyntaxError,
    UnknownParameterError,
)
from support.zips import make_zip


def _inspect(source: str, filename: str = "train.py") -> list[ProgramEntrypoint]:
    return program.inspect(bundle.pack_source(filename, dedent(source).encode()))


MAIN = '''
    def main(run, *, learning_rate: float = 0.1, epochs: int = 20, name: str, deep: bool = False, sizes=(64, 10)):
        """Trains a network.

        And more.
        """
'''


def test_entrypoint_has_name_summary_types_and_defaults() -> None:
    (main,) = _inspect(MAIN)
    assert (main.entrypoint, main.summary) == ("train:main", "Trains a network.")
    assert [(p.name, p.type, p.required, p.default) for p in main.parameters] == [
        ("learning_rate", "float", False, 0.1),
        ("epochs", "int", False, 20),
        ("name", "str", True, None),
        ("deep", "bool", False, False),
        ("sizes", "list", False, [64, 10]),
    ]


def test_defaults_are_known_where_the_source_tells_them() -> None:
    (main,) = _inspect("""
        def main(run, steps=3, *, name: str, lr: float = 0.5, opt={"a": 1}, on=False, seed=None, when=clock()): pass
    """)

    assert program.known_defaults(main) == {"steps": 3, "lr": 0.5, "opt": {"a": 1}, "on": False}


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("x: int | None = None", "int"),
        ("x: 'float' = 1.0", "float"),
        ("x: 'int | None' = None", "int"),
        ("x: Optional[str] = None", "str"),
        ("x: typing.Optional[bool] = None", "bool"),
        ("x: list[int] = []", "list"),
        ("x: dict[str, int] = {}", "json"),
        ("x: 'list[int] | None' = None", "list"),
        ("x: typing.Sequence[float] = ()", "list"),
        ("x=[1, 'a']", "list"),
        ("x=3", "int"),
        ("x=-0.5", "float"),
        ("x=True", "bool"),
        ("x=None", "json"),
        ("x=DEFAULT", "json"),
        ("x: float = 2**-3", "float"),
    ],
)
def test_type_comes_from_the_annotation_else_from_the_default(declared: str, expected: str) -> None:
    (main,) = _inspect(f"def main(run, *, {declared}): pass")
    assert main.parameters[0].type == expected
    assert not main.parameters[0].required


def test_plain_arguments_after_run_are_parameters_too() -> None:
    (main,) = _inspect("def main(run, epochs, rate=0.5): pass")
    assert [(p.name, p.required) for p in main.parameters] == [("epochs", True), ("rate", False)]


@pytest.mark.parametrize(
    "source",
    [
        "def main(context): pass",
        "def main(): pass",
        "def _main(run): pass",
        "async def main(run): pass",
        "class A:\n    def main(run): pass",
        "if True:\n    def main(run): pass",
        "def main(run, must, /): pass",
    ],
)
def test_what_cannot_be_called_as_a_program_is_no_entrypoint(source: str) -> None:
    assert _inspect(source) == []


def test_nothing_of_the_program_is_executed(tmp_path: object) -> None:
    (main,) = _inspect("raise SystemExit('executed')\nimport nowhere\n@nowhere.decorator\ndef main(run): pass")
    assert main.entrypoint == "train:main"


def test_entrypoints_of_packages_are_named_by_module_and_main_comes_first() -> None:
    content = b"def zebra(run): pass\ndef main(run): pass\n"
    archive = make_zip("pkg/deep/mod.py", "pkg/__init__.py", "top.py", "not-a-module.py", "README.md", content=content)
    assert [offered.entrypoint for offered in program.inspect(archive)] == [
        "pkg:main", "top:main", "pkg:zebra", "top:zebra", "pkg.deep.mod:main", "pkg.deep.mod:zebra",
    ]  # fmt: skip


def test_syntax_error_names_file_and_line() -> None:
    with pytest.raises(ProgramSyntaxError, match=r"train\.py, line 3"):
        _inspect("x = 1\n\ndef main(run:\n    pass\n")


def test_module_that_does_not_parse_hurts_only_a_program_without_entrypoint() -> None:
    good = bundle.pack_source("good.py", b"def main(run): pass")
    assert program.inspect(good)
    broken = make_zip("template.py", content=b"def {{name}}(run): pass")
    with pytest.raises(ProgramSyntaxError):
        program.inspect(broken)


@pytest.mark.parametrize(
    "source",
    [
        b"def main(run): " + b"-" * 200_000 + b"1",
        b"def main(run): x = " + b"(" * 10_000 + b")" * 10_000,
        b"def main(run): return " + b"1+" * 100_000 + b"1",
        b"def main(run): pass\0",
        b"# -*- coding: nonsense -*-\ndef main(run): pass",
        b"\xff\xfe def main(run)",
    ],
    ids=["unary", "brackets", "sum", "nul", "coding", "no text"],
)
def test_hostile_source_is_an_error_or_fine_but_never_a_crash(source: bytes) -> None:
    started = time.process_time()
    with suppress(ProgramSyntaxError):
        program.inspect(bundle.pack_source("train.py", source))
    assert time.process_time() - started < 2


@pytest.mark.parametrize("default", ['"\\ud800"', "[" * 150 + "]" * 150])
def test_a_default_that_no_store_can_hold_is_left_to_the_program(default: str) -> None:
    (entrypoint,) = _inspect(f'def main(run, *, s={default}):\n    "half \\ud800"\n')
    (parameter,) = entrypoint.parameters
    assert (parameter.required, parameter.default) == (False, None)
    assert entrypoint.model_dump_json()


def test_too_much_source_is_refused() -> None:
    module = b"def main(run): pass\n" + b"#" * (program.MAX_MODULE_BYTES - 100)
    with pytest.raises(ProgramError, match="drumlineignore"):
        program.inspect(make_zip(*(f"m{number}.py" for number in range(9)), content=module))


def test_module_too_large_to_be_read_is_told_by_name() -> None:
    source = b"def main(run): pass\n" + b"#" * program.MAX_MODULE_BYTES
    with pytest.raises(ProgramError, match=r"train\.py has 1048\d+ bytes"):
        program.inspect(bundle.pack_source("train.py", source))


@given(st.text(max_size=200))
def test_any_text_is_inspected_without_another_error(source: str) -> None:
    try:
        text = f"{source}\ndef main(run): pass".encode()
    except UnicodeEncodeError:
        return
    with suppress(ProgramSyntaxError):
        program.inspect(bundle.pack_source("train.py", text))


def test_only_entrypoint_or_main_is_chosen_without_being_named() -> None:
    assert program.find(_inspect("def train(run): pass"), None).entrypoint == "train:train"
    assert program.find(_inspect("def train(run): pass\ndef main(run): pass"), None).entrypoint == "train:main"


@pytest.mark.parametrize(
    ("source", "wanted", "said"),
    [
        ("x = 1", None, "def main"),
        ("def a(run): pass\ndef b(run): pass", None, "train:a, train:b"),
        ("def main(run): pass", "train:other", "train:main"),
    ],
)
def test_missing_entrypoint_is_told_with_what_there_is(source: str, wanted: str | None, said: str) -> None:
    with pytest.raises(EntrypointNotFoundError, match=said) as caught:
        program.find(_inspect(source), wanted)
    assert caught.value.code == "entrypoint_not_found"


def test_parameters_that_fit_are_returned_with_whole_numbers_as_floats() -> None:
    (main,) = _inspect(MAIN)
    checked = program.check_parameters(main, {"learning_rate": 1, "name": "x", "sizes": [1, "any", {}]})
    assert checked == {"learning_rate": 1.0, "name": "x", "sizes": [1, "any", {}]}
    assert isinstance(checked["learning_rate"], float)


def test_unknown_parameter_is_answered_with_the_nearest_name() -> None:
    (main,) = _inspect(MAIN)
    with pytest.raises(UnknownParameterError, match="did you mean 'learning_rate'") as caught:
        program.check_parameters(main, {"learning_rat": 1, "name": "x"})
    assert (caught.value.code, caught.value.name) == ("unknown_parameter", "learning_rat")


def test_missing_parameter_is_named() -> None:
    (main,) = _inspect(MAIN)
    with pytest.raises(MissingParameterError, match="'name'") as caught:
        program.check_parameters(main, {})
    assert caught.value.code == "missing_parameter"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 1.5), ("epochs", True), ("epochs", "20"), ("learning_rate", "fast"), ("learning_rate", float("nan")),
        ("learning_rate", True), ("learning_rate", 10**400), ("deep", 1), ("deep", "yes"), ("name", 3), ("name", None),
        ("epochs", [1]),
    ],
)  # fmt: skip
def test_value_of_the_wrong_type_is_refused_by_name(name: str, value: JsonValue) -> None:
    (main,) = _inspect(MAIN)
    with pytest.raises(BadParameterError, match=repr(name)) as caught:
        program.check_parameters(main, {"name": "x", name: value})
    assert caught.value.code == "bad_parameter"


def test_none_is_taken_where_there_is_a_default() -> None:
    (main,) = _inspect("def main(run, *, limit: int | None = None): pass")
    assert program.check_parameters(main, {"limit": None}) == {"limit": None}


@pytest.mark.parametrize(
    ("declared", "items"),
    [
        ("x: list[int]", "int"),
        ("x: tuple[float, ...]", "float"),
        ("x: tuple[int, int]", "int"),
        ("x: tuple[int, str]", "json"),
        ("x: list", "json"),
        ("x: list[list[int]]", "json"),
    ],
)
def test_what_a_list_holds_comes_from_its_annotation(declared: str, items: str) -> None:
    (main,) = _inspect(f"def main(run, *, {declared}): pass")
    assert (main.parameters[0].type, main.parameters[0].items) == ("list", items)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (64, r"parameter 'x' takes a list of whole numbers, such as \[64, 32\], not 64"),
        ("64,32", "takes a list of whole numbers"),
        ([64, "32"], "item 1 of parameter 'x' takes a whole number, not \"32\""),
        ([64, True], "item 1"),
    ],
)
def test_list_that_does_not_fit_is_refused_naming_the_item(value: JsonValue, said: str) -> None:
    (main,) = _inspect("def main(run, *, x: list[int]): pass")
    with pytest.raises(BadParameterError, match=said):
        program.check_parameters(main, {"x": value})


def test_whole_numbers_in_a_list_of_floats_become_floats() -> None:
    (main,) = _inspect("def main(run, *, x: list[float]): pass")
    assert program.check_parameters(main, {"x": [1, 0.5]}) == {"x": [1.0, 0.5]}
