"""A scripted server, and clients of it that don't wait between tries."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from pydantic import SecretStr

from drumline import Client
from drumline._transport import Transport
from drumline.config import Config
from drumline.resources.runs import Run
from support import answers
from support.scripted_server import TOKEN, ScriptedServer


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer().running() as running:
        yield running


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
def transport(server: ScriptedServer, pauses: Pauses) -> Iterator[Transport]:
    opened = Transport(Config(server.url, SecretStr(TOKEN)), timeout_s=5, sleep=pauses)
    yield opened
    opened.close()


@pytest.fixture
def client(server: ScriptedServer) -> Iterator[Client]:
    with Client(server.url, TOKEN) as opened:
        yield opened


@pytest.fixture
def run(transport: Transport) -> Run:
    return Run(transport, answers.run())
