"""Pages name nothing that does not exist: files, code, settings, commands, flags, routes, verbs of make, links."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from support.code_names import PAGES, ROOT, read_code

_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(
    r"^[\w./-]*\w\.(?:py|md|json|toml|ya?ml|sh|mjs|tsx?|sse|id|txt|lock)$|^[\w.-]+(?:/[\w.-]+)*/$|^\w+(?:/\w+)+$"
)
_DOTTED = re.compile(r"^[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+(?:\(.*\))?$")
_ROUTE = re.compile(r"^(?:(?:GET|POST|PUT|PATCH|DELETE) )?(/\S+|\.\.\./\S+|[a-z]+/\{\S+)$")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}")
_FOREIGN = {"tf", "jax", "lax", "jnp", "fastapi", "torch", "experimental", "python3"}
"""Heads of names that others define."""
_ELSEWHERE = {
    "DataLoader", "Forwarded", "Proto", "GradientTape", "HttpOnly", "NOTHING", "SameSite", "cProfile", "finally",
    "io_callback", "mini", "noqa",    "jax_cpu_enable_async_dispatch", "nocto", "packaging", "ulimit", "xk2f",
}  # fmt: skip
"""Words that belong to other projects, to browsers and to systems, each named for what it does there."""


@cache
def surface() -> dict[str, dict[str, object]]:
    read: dict[str, dict[str, object]] = json.loads((ROOT / "tests" / "house" / "surface.json").read_text())
    return read


def spans(page: Path) -> Iterator[str]:
    for found in _SPAN.findall(_FENCED.sub("", page.read_text())):
        yield " ".join(found.split())


def fenced(page: Path) -> str:
    return "\n".join(_FENCED.findall(page.read_text()))


by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


def _is_file(span: str) -> bool:
    return bool(_FILE.match(span)) and not _ROUTE.match(span)


@by_page
def test_every_file_that_is_named_exists_or_is_written_by_the_code(page: Path) -> None:
    named = {each.partition("::")[0] for each in spans(page) if _is_file(each.partition("::")[0])}

    assert {
        each
        for each in named
        if not (read_code().finds_file(each) or (page.parent / each).exists() or _is_written(each) or _is_route(each))
    } == set()


def _is_written(path: str) -> bool:
    """By the build or at run time: each part of it is a text of the code."""
    is_source = path.endswith((".py", ".ts", ".tsx", ".md"))
    text = read_code().text
    return path in text or (not is_source and all(part in text for part in path.split("/") if part))


@by_page
def test_every_dotted_name_exists(page: Path) -> None:
    named = {each.partition("(")[0] for each in spans(page) if _DOTTED.match(each) and not _is_file(each)}

    assert {each for each in named if each.split(".")[0] not in _FOREIGN and not _is_known(each)} == set()


def _is_known(dotted: str) -> bool:
    head, _, rest = dotted.partition(".")
    if head == "dist":
        return read_code().finds(f"drumline.distribute.{rest}") or f"drumline.distribute.{rest}" in surface()["python"]
    if read_code().finds(dotted):
        return True
    if read_code().finds(f"{head.title()}.{rest}") or f'"{dotted}"' in read_code().text:
        return True
    is_object = not read_code().modules_called(head) and head[0].islower()
    return is_object and all(each in read_code().words for each in dotted.split("."))


@by_page
def test_every_word_in_a_code_span_is_one_of_the_sources(page: Path) -> None:
    named = [
        span for span in spans(page) if not span.startswith("tf.") and not span.endswith("...") and "::" not in span
    ]
    words = {word for span in named for word in _WORD.findall(span)}

    settings = {each.removeprefix("DRUMLINE_") for each in surface()["settings"]}
    assert words - read_code().words - settings - _ELSEWHERE == set()


@by_page
def test_every_setting_exists(page: Path) -> None:
    named = set(re.findall(r"\bDRUMLINE_[A-Z][A-Z_]*[A-Z]\b", page.read_text()))

    assert named - surface()["settings"].keys() - read_code().words == set()


@by_page
def test_every_verb_of_make_exists(page: Path) -> None:
    verbs = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = "\n".join([*spans(page), fenced(page)])

    assert set(re.findall(r"(?:^|; )make ([a-z][a-z0-9-]*)", text, re.MULTILINE)) - verbs == set()


@by_page
def test_every_command_exists_and_takes_the_flags(page: Path) -> None:
    commands = surface()["command line"]
    lines = [*spans(page), *fenced(page).splitlines()]
    wrong = []
    for line in lines:
        for used in re.findall(r"(?:^|; )(drumline [a-z][^#;|]*)", line):
            words = used.split()
            name = next((each for count in (3, 2) if (each := " ".join(words[:count])) in commands), None)
            flags = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
            taken = {short for each in commands.get(name or "", []) for short in str(each).split()}  # type: ignore[attr-defined]
            if name is None or {flag for flag in flags if flag.startswith("--")} - taken:
                wrong.append(used)

    assert wrong == []


@by_page
def test_every_route_exists(page: Path) -> None:
    named = {found[1] for each in spans(page) if (found := _ROUTE.match(each)) and "|" not in each}

    assert {each for each in named if not _is_route(each)} == set()


@cache
def routes() -> set[str]:
    described = json.loads((ROOT / "frontend" / "openapi.json").read_text())["paths"]
    return {_plain(path) for path in described} | {"/metrics", "/readyz", "/healthz"}


def _is_route(named: str) -> bool:
    return any(_matches(named, path) for path in routes())


def _plain(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "{}", path)


def _matches(named: str, path: str) -> bool:
    plain = _plain(named).removeprefix("...").removeprefix("/api/v1").lstrip("/")
    return path.endswith(f"/{plain}") or named.rstrip("/") == "/api/v1"


@by_page
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text())

    assert [each for each in links if not _leads(page, each)] == []


def _leads(page: Path, link: str) -> bool:
    file, _, anchor = link.partition("#")
    target = page.parent / file if file else page
    if not target.exists():
        return False
    headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE) if target.suffix == ".md" else []
    return not anchor or anchor in {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}
