"""An object store on this machine: moto's server, behind what refuses as S3 does, behind a line that fails.

moto believes any credential and keeps any address good for ever; the door before it knows one key and reads the clock.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import parse_qs

import httpx2
from starlette.types import Receive, Scope, Send

from support.layer import Answer, Layer, layer_before, send_answer
from support.proxy import Proxy, proxy_to

BUCKET = "programs"
KEY = "drumline-test"
SECRET = "known-to-the-server-alone"
_MOTO = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(*server.get_host_and_port(), flush=True)
sys.stdin.read()
"""


class Door(Layer):
    """Lets in who names the key, by a header or by an address that is still good."""

    ahead_s = 0.0
    """By how much its clock is ahead of ours."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on, or refuses it."""
        code = self._refusal(scope) if scope["type"] == "http" else None
        if code is None:
            await super().__call__(scope, receive, send)
        else:
            body = f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>".encode()
            await send_answer(Answer(403, body, "application/xml"), send)

    def _refusal(self, scope: Scope) -> str | None:
        query = {name: values[0] for name, values in parse_qs(scope["query_string"].decode()).items()}
        given = dict(scope["headers"]).get(b"authorization", b"").decode() or query.get("X-Amz-Credential", "")
        if not given:
            return "AccessDenied"
        if f"{KEY}/" not in given:
            return "InvalidAccessKeyId"
        if "X-Amz-Date" in query:
            signed = datetime.strptime(query["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
            if signed + int(query["X-Amz-Expires"]) < time.time() + self.ahead_s:
                return "AccessDenied"
        return None


@dataclass(frozen=True)
class ObjectServer:
    """A bucket, the door before it, and the line to the door."""

    door: Door
    line: Proxy
    moto: str

    @property
    def url(self) -> str:
        """What the setting is: a part of the bucket that nobody else of the tests has."""
        return f"s3://{BUCKET}/a/place"

    def environment(self, **changes: str) -> dict[str, str]:
        """What the server finds in its environment."""
        return {
            "AWS_ENDPOINT_URL": self.line.url,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            **changes,
        }

    def reset(self) -> None:
        """An empty bucket, a door without orders, a line that works."""
        httpx2.post(f"{self.moto}/moto-api/reset")
        httpx2.put(f"{self.moto}/{BUCKET}").raise_for_status()
        self.door.reset()
        self.door.ahead_s = 0.0
        self.line.mend()

    def sent(self, method: str, part: str = "") -> list[str]:
        """The objects that were asked for by such a method so far, with that in their names."""
        asked = [each.path for each in self.door.requests if each.method == method]
        return [path.removeprefix(f"/{BUCKET}/a/place/") for path in asked if part in path]


@contextmanager
def object_server() -> Iterator[ObjectServer]:
    """Serves a bucket until the block ends."""
    command = [sys.executable, "-c", _MOTO]
    moto = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ}
    )
    try:
        assert moto.stdout is not None
        host, port = moto.stdout.readline().split()
        with layer_before(f"http://{host}:{port}", Door) as (url, door), proxy_to(url) as line:
            assert isinstance(door, Door)
            server = ObjectServer(door, line, f"http://{host}:{port}")
            server.reset()
            yield server
    finally:
        moto.communicate()
