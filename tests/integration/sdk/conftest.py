"""The real application, behind a layer that answers otherwise where a test says so, and clients that don't wait."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pydantic import SecretStr

from drumline import Client
from drumline._transport import Config, Transport
from drumline.resources.runs import Run
from support import answers
from support.command_line import Cli
from support.edge import EdgeServer

SOURCE = "def main(run, *, learning_rate: float = 0.1, epochs: int = 20, name: str = 'x'):\n    return {}\n"


@pytest.fixture
def server(layered: EdgeServer) -> EdgeServer:
    return layered


@dataclass
class Pauses:
    """How long the transport would have slept."""

    lengths: list[float] = field(default_factory=list)

    def __call__(self, seconds: float) -> None:
        self.lengths.append(seconds)


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
def transport(server: EdgeServer, pauses: Pauses) -> Iterator[Transport]:
    opened = Transport(Config(server.url, SecretStr(server.admin_token)), timeout_s=5, sleep=pauses)
    yield opened
    opened.close()


@pytest.fixture
def client(server: EdgeServer) -> Iterator[Client]:
    with Client(server.url, server.admin_token) as opened:
        yield opened


@pytest.fixture
def run(transport: Transport) -> Run:
    return Run(transport, answers.run())


@pytest.fixture
def cli(server: EdgeServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Cli:
    monkeypatch.setenv("DRUMLINE_URL", server.url)
    monkeypatch.setenv("DRUMLINE_TOKEN", server.admin_token)
    monkeypatch.setenv("DRUMLINE_DATA_DIR", str(tmp_path / "nothing"))
    return Cli(capsys)


@pytest.fixture
def program(tmp_path: Path) -> str:
    (tmp_path / "digits.py").write_text(SOURCE)
    return str(tmp_path / "digits.py")
