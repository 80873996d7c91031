"""The built dashboard: pages for deep links, assets for ever, and a word where it is not built."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from support.edge import edge_server

PAGE = {"Accept": "text/html,application/xhtml+xml"}


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A dashboard as the build leaves it, beside a file that nobody may read."""
    directory = tmp_path / "dist"
    (directory / "assets").mkdir(parents=True)
    (directory / "index.html").write_text("<!doctype html><title>Drumline</title>")
    (directory / "assets" / "index-abc123.js").write_text("export {}")
    (directory / "favicon.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (tmp_path / "secret.txt").write_text("secret")
    return directory


@pytest.fixture
def dashboard(sqlite_url: str, tmp_path: Path, built: Path) -> Iterator[httpx2.Client]:
    with edge_server(sqlite_url, tmp_path / "data", static_dir=built) as server:
        yield server.client()


@pytest.mark.parametrize("path", ["/", "/runs", "/runs/run_1/logs", "/jobs/my.job", "/login"])
def test_a_deep_link_gets_the_page(dashboard: httpx2.Client, path: str) -> None:
    answer = dashboard.get(path, headers=PAGE)

    assert answer.status_code == 200
    assert "<title>Drumline</title>" in answer.text
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["content-type"] == "text/html; charset=utf-8"


def test_a_hashed_asset_is_kept_for_ever(dashboard: httpx2.Client) -> None:
    answer = dashboard.get("/assets/index-abc123.js")

    assert answer.text == "export {}"
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert dashboard.get("/favicon.svg").headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/assets/index-old.js", PAGE),
        ("GET", "/assets/index-old.js", {}),
        ("GET", "/runs", {"Accept": "application/json"}),
        ("POST", "/runs", PAGE),
        ("GET", "/api/v1/nothing", PAGE),
        ("GET", "/api/nothing", PAGE),
        ("GET", "/%2e%2e/secret.txt", {}),
        ("GET", "/..%2fsecret.txt", {}),
        ("GET", "/assets/..%2f..%2fsecret.txt", {}),
        ("GET", "/%2fetc/passwd", {}),
        ("GET", "/a%00b", {}),
        ("GET", "/" + "a" * 5_000, {}),
    ],
)
def test_anything_else_is_not_there(dashboard: httpx2.Client, method: str, path: str, headers: dict[str, str]) -> None:
    answer = dashboard.request(method, path, headers=headers)

    assert answer.status_code == 404
    assert answer.json()["code"] == "not_found"
    assert "secret" not in answer.json().get("context", {})


def test_a_dashboard_that_is_not_built_says_how_to(sqlite_url: str, tmp_path: Path) -> None:
    with edge_server(sqlite_url, tmp_path / "data", static_dir=tmp_path / "nothing") as server:
        answer = server.client().get("/", headers=PAGE)

    assert answer.headers["content-type"].startswith("text/plain")
    assert "make " in answer.text
