"""The real application, behind a layer that answers otherwise where a test says so, and clients that don't wait."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from pydantic import SecretStr

from drumline import Client
from drumline._transport import Transport
from drumline.config import Config
from drumline.resources.runs import Run
from support import answers
from support.edge import EdgeServer


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
